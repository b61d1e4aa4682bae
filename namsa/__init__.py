"""Simulation of 4D-STEM: convergent-beam electron diffraction of crystals by multislice, with
electron densities.

Example:
    Simulate a crystal from a CIF file::

        import namsa

        crystal = namsa.read_cif("SrTiO3.cif")
        cell = namsa.make_supercell(
            crystal.atoms, zone_axis=(0, 0, 1), lateral_angstrom=(15, 15), thickness_angstrom=40
        )
        sample = namsa.simulate(cell.atoms, energy_ev=200e3, semiangle_mrad=20, scan=(16, 16))
        sample.show("sample.png")
        sample.save("sample.h5")

The public names are those of `__init__.pyi`. Each is imported when it is first used, so that
`import namsa` and `namsa --help` stay fast.
"""

import lazy_loader

from namsa.base.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
