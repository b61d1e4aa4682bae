"""The version of the distribution, here so that a tree that is not installed knows it, too;
pyproject.toml reads it.
"""

__version__ = "0.3.0"
