"""Plugin that py4D-browser finds: it imports every module of this namespace package, which other
distributions share.
"""

from namsa_train.integrations.py4d_browser import NamsaPlugin as NamsaPlugin
