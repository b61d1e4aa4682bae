"""Training of networks on simulated 4D-STEM data, and reconstruction with trained networks.

    import train

    result = train.reconstruct("scan.h5", "200kv-20mrad-reality")
    result.density, result.uncertainty, result.axes_angstrom
    result.save("density.h5")
    result.show("density.png")

The public names are those of `__init__.pyi`. Each is imported when it is first used: `import train`
does not import TensorFlow.
"""

import lazy_loader

from namsa.base.version import __version__ as __version__

from .execution import backend, quiet

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]

backend.fall_back()
quiet.install()
