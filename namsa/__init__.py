"""Multislice simulation of 4D-STEM: convergent-beam electron diffraction of real crystals, with its targets."""

from namsa.checks import SimulationWarning
from namsa.config.simulation import Detector, FrozenPhonons
from namsa.errors import InputError, WorkError
from namsa.simulate import Sample, simulate

__all__ = ["Detector", "FrozenPhonons", "InputError", "Sample", "SimulationWarning", "WorkError", "simulate"]
