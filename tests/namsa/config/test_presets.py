"""Presets of detectors and microscopes: they stand for values, which a configuration keeps in place of the name."""

from typing import get_args

import numpy as np
import pytest
import yaml

import namsa
from namsa.config.instrument import Detector, Microscope
from namsa.config.loading import dump_yaml, validate
from namsa.config.presets import DETECTORS, MICROSCOPES
from namsa.physics.optics import wavelength_angstrom


@pytest.mark.parametrize(("section", "presets"), [(Detector, DETECTORS), (Microscope, MICROSCOPES)])
def test_a_section_takes_the_names_that_there_are(section, presets):
    literal, _ = get_args(section.model_fields["preset"].annotation)
    assert set(get_args(literal)) == set(presets)
    for name in presets:
        assert "preset" not in section(preset=name).model_dump()


def test_a_detector_reaches_the_angle_that_is_asked_for():
    assert Detector(preset="empad", max_angle_mrad=32) == Detector(shape=(128, 128), pixel_mrad=0.5)
    assert Detector(preset="arina", pixel_mrad=0.4) == Detector(shape=(192, 192), pixel_mrad=0.4)
    assert Detector(preset="merlin", shape=(64, 128), max_angle_mrad=32).pixel_mrad == 0.5


def test_other_keys_override_a_microscope():
    assert Microscope(preset="corrected-300kv", semiangle_mrad=25) == Microscope(energy_ev=300e3, semiangle_mrad=25)


def test_the_uncorrected_probe_is_the_smallest_that_its_spherical_aberration_allows():
    """Aperture 1.41 (λ/C30)^¼ and underfocus √(C30 λ)."""
    probe, wavelength = Microscope(preset="uncorrected-200kv"), wavelength_angstrom(200e3)
    spherical = probe.aberrations["C30"]
    assert probe.semiangle_mrad == pytest.approx(1.41e3 * (wavelength / spherical) ** 0.25, rel=1e-3)
    assert probe.aberrations["C10"] == pytest.approx(-np.sqrt(spherical * wavelength), abs=1)


def test_an_unknown_preset_is_refused_with_the_names_and_a_written_one_reads_back_as_the_same():
    with pytest.raises(namsa.InputError, match="empad"):
        validate(Detector, {"preset": "emapd"}, "detector")
    detector = Detector(preset="arina", max_angle_mrad=40)
    assert Detector(**yaml.safe_load(dump_yaml(detector))) == detector


def test_a_file_without_a_format_takes_the_name_of_a_detector(tmp_path):
    frames = np.zeros((4, 128, 128), "u2")
    frames.tofile(tmp_path / "a.bin")
    with namsa.read(tmp_path / "a.bin", dtype="u2", detector_shape="empad", scan_shape=(2, 2)) as scan:
        assert scan.shape == (2, 2, 128, 128)
