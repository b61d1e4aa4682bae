"""A fully convolutional DenseNet in pure Keras 3, and its size from the configuration alone.

`build` makes the Keras model of a `NetworkConfig`. `count` computes its parameters, FLOP and
activation memory without Keras. Importing this package does not import Keras: `build` does when it
is called.
"""

from importlib.metadata import PackageNotFoundError, version

# `build` and `count` are also the names of their modules. The import system binds such a name to
# the module when it loads it. That happens here, before the name is bound to the function, and only
# once per process. So `fcdensenet.build` is always the function.
from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.count import count

__all__ = ["NetworkConfig", "__version__", "build", "count"]

try:
    __version__ = version("namsa")  # the distribution that this package is part of
except PackageNotFoundError:
    __version__ = "not installed"
