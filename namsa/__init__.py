"""Simulation of 4D-STEM: convergent-beam electron diffraction of crystals by multislice, with electron densities.

Example:
    Simulate a crystal from a CIF file::

        import namsa

        crystal = namsa.read_cif("SrTiO3.cif")
        cell = namsa.make_supercell(
            crystal.atoms, zone_axis=(0, 0, 1), lateral_angstrom=(15, 15), thickness_angstrom=40
        )
        sample = namsa.simulate(
            cell.atoms, energy_ev=200e3, semiangle_mrad=20, grid_shape=(128, 128), positions_angstrom=[[0, 0]]
        )
        sample.show("sample.png")
        sample.save("sample.h5")

Public names are imported when they are first used, so that `import namsa` and `namsa --help` stay fast.
"""

import importlib
import sys
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from namsa.config.instrument import Detector as Detector
    from namsa.config.instrument import FrozenPhonons as FrozenPhonons
    from namsa.config.instrument import Microscope as Microscope
    from namsa.config.instrument import Scan as Scan
    from namsa.config.instrument import Specimen as Specimen
    from namsa.config.response import Plasmons as Plasmons
    from namsa.config.response import Response as Response
    from namsa.config.simulation import SimulationConfig as SimulationConfig
    from namsa.config.simulation import load_config as load_config
    from namsa.crystals.builtin import builtin_materials as builtin_materials
    from namsa.crystals.cif import read_cif as read_cif
    from namsa.crystals.kinds.specimen import make_specimen as make_specimen
    from namsa.crystals.layers import layer_materials as layer_materials
    from namsa.crystals.material import Material as Material
    from namsa.crystals.sites import random_occupations as random_occupations
    from namsa.crystals.structure_files import read_crystal as read_crystal
    from namsa.crystals.supercell import make_supercell as make_supercell
    from namsa.crystals.twisted import TwistedBilayer as TwistedBilayer
    from namsa.crystals.twisted import make_twisted_bilayer as make_twisted_bilayer
    from namsa.dataset.records import Record as Record
    from namsa.dataset.shards import Dataset as Dataset
    from namsa.errors import InputError as InputError
    from namsa.errors import SimulationWarning as SimulationWarning
    from namsa.errors import WorkError as WorkError
    from namsa.exchange.export import export_ptychography as export_ptychography
    from namsa.figures.sample_figure import show as show
    from namsa.inspection.inspect import Inspection as Inspection
    from namsa.inspection.inspect import inspect as inspect
    from namsa.io.calibration import CalibrationOverrides as CalibrationOverrides
    from namsa.io.calibration import FourDData as FourDData
    from namsa.io.charge_density import ChargeDensity as ChargeDensity
    from namsa.io.charge_density import read_charge_density as read_charge_density
    from namsa.io.hdf5 import write_samples as write_samples
    from namsa.io.reading import open_patterns as open_patterns
    from namsa.io.reading import read as read
    from namsa.io.recording import Recording as Recording
    from namsa.io.stack_file import StackFile as StackFile
    from namsa.physics.virtual_detectors import annular as annular
    from namsa.physics.virtual_detectors import bright_field as bright_field
    from namsa.physics.virtual_detectors import centre_of_mass as centre_of_mass
    from namsa.physics.virtual_detectors import integrated_centre_of_mass as integrated_centre_of_mass
    from namsa.pixels import PixelGrid as PixelGrid
    from namsa.sample import Sample as Sample
    from namsa.sample_file import read_sample as read_sample
    from namsa.sample_file import read_samples as read_samples
    from namsa.scatter import Scattering as Scattering
    from namsa.scatter import scatter as scatter
    from namsa.simulate import simulate as simulate
    from namsa.view.browse import browse as browse
    from namsa.view.inspection_figure import draw_inspection as draw_inspection
    from namsa.view.page import Page as Page

# The modules of the public names.
_MODULES = {
    # Simulation
    "simulate": "namsa.simulate",
    "scatter": "namsa.scatter",
    "Scattering": "namsa.scatter",
    "Sample": "namsa.sample",
    "SimulationWarning": "namsa.errors",
    # Configuration
    "SimulationConfig": "namsa.config.simulation",
    "load_config": "namsa.config.simulation",
    "Specimen": "namsa.config.instrument",
    "FrozenPhonons": "namsa.config.instrument",
    "Microscope": "namsa.config.instrument",
    "Scan": "namsa.config.instrument",
    "Detector": "namsa.config.instrument",
    "Response": "namsa.config.response",
    "Plasmons": "namsa.config.response",
    # Crystals
    "Material": "namsa.crystals.material",
    "read_cif": "namsa.crystals.cif",
    "read_crystal": "namsa.crystals.structure_files",
    "builtin_materials": "namsa.crystals.builtin",
    "layer_materials": "namsa.crystals.layers",
    "make_supercell": "namsa.crystals.supercell",
    "random_occupations": "namsa.crystals.sites",
    "make_specimen": "namsa.crystals.kinds.specimen",
    "make_twisted_bilayer": "namsa.crystals.twisted",
    "TwistedBilayer": "namsa.crystals.twisted",
    # Datasets
    "Dataset": "namsa.dataset.shards",
    "Record": "namsa.dataset.records",
    # Files
    "read_sample": "namsa.sample_file",
    "read_samples": "namsa.sample_file",
    "write_samples": "namsa.io.hdf5",
    "StackFile": "namsa.io.stack_file",
    "read_charge_density": "namsa.io.charge_density",
    "ChargeDensity": "namsa.io.charge_density",
    "export_ptychography": "namsa.exchange.export",
    "read": "namsa.io.reading",
    "Recording": "namsa.io.recording",
    "open_patterns": "namsa.io.reading",
    "FourDData": "namsa.io.calibration",
    "CalibrationOverrides": "namsa.io.calibration",
    # Images
    "show": "namsa.figures.sample_figure",
    "browse": "namsa.view.browse",
    "Page": "namsa.view.page",
    "PixelGrid": "namsa.pixels",
    "annular": "namsa.physics.virtual_detectors",
    "bright_field": "namsa.physics.virtual_detectors",
    "centre_of_mass": "namsa.physics.virtual_detectors",
    "integrated_centre_of_mass": "namsa.physics.virtual_detectors",
    # Calibration
    "inspect": "namsa.inspection.inspect",
    "Inspection": "namsa.inspection.inspect",
    "draw_inspection": "namsa.view.inspection_figure",
    # Errors
    "InputError": "namsa.errors",
    "WorkError": "namsa.errors",
}
__all__ = list(_MODULES)
__all__ += ["__version__"]

__version__ = version("namsa")


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the module's names with the public ones that are not imported yet."""
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This package. `namsa.simulate` is the function: importing its module of the same name does not hide it."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _MODULES.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
