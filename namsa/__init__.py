"""Multislice simulation of 4D-STEM: convergent-beam electron diffraction of real crystals, with its targets."""

from namsa.checks import SimulationWarning
from namsa.config.instrument import Detector, FrozenPhonons
from namsa.errors import InputError, WorkError
from namsa.sample import Sample
from namsa.simulate import simulate

__all__ = ["Detector", "FrozenPhonons", "InputError", "Sample", "SimulationWarning", "WorkError", "simulate"]
