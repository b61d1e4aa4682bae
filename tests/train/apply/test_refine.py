"""Refinement of a whole scan in blocks: what the result says, and that what is not refined stays."""

import numpy as np
import pytest
from small_network import BEAM, experiment, patterns, write_run

from namsa.inverse.refinement import Refined
from train.apply import refine
from train.apply.trust import KnownSpecimen
from train.tasks.density.application import ReconstructionOptions, reconstruct

SPECIMEN, STEPS = KnownSpecimen(20.0, "Si"), ReconstructionOptions(refine_steps=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("refine"), experiment())


def test_blocks_are_blended_and_lost_patterns_stay_lost(folder, monkeypatch):
    values, calls = patterns((36, 80), seed=3), []
    values[5, 7] = np.nan

    def twice(density, uncertainty, measured, known, *, steps, on_step):
        calls.append((density.shape, measured.shape[:2], bool(np.isfinite(density).all()), known, steps))
        facts = {"steps": 2, "kept_out_divergence_before": 0.2, "kept_out_divergence": 0.1, "C10": -3.0, "C12": 1.0}
        sizes = {"C21": 5.0, "source_size_angstrom": 0.5, "thickness_angstrom": 20.0, "tilt_mrad": [3.0, 4.0]}
        return Refined(2 * density, facts | sizes | {"amount": 2.0, "atomic_columns": 9})

    plain = reconstruct(values, folder, BEAM, beam_intensity=1.0)
    monkeypatch.setattr(refine, "refine", twice)
    found = reconstruct(values, folder, BEAM, beam_intensity=1.0, specimen=SPECIMEN, options=STEPS)
    np.testing.assert_allclose(found.density, 2 * plain.density, rtol=1e-5)
    assert np.isnan(found.density[5, 7])
    assert [block["columns"] for block in found.provenance["refined"]["blocks"]] == [[0, 64], [16, 80]]
    assert [call[:3] for call in calls] == [((36, 64), (36, 64), True)] * 2
    assert calls[0][3].composition == {14: 1}
    assert calls[0][4] == 2
    assert any("falls from 0.2 to 0.1; C10 −3 Å" in line and "tilt 5.0 mrad" in line for line in found.notes)


def test_a_density_of_a_network_that_learnt_nothing_is_refined_or_stays(folder):
    found = reconstruct(patterns((24, 28)), folder, BEAM, beam_intensity=1.0, specimen=SPECIMEN, options=STEPS)
    assert np.isfinite(found.density).all()
    assert sum(line.startswith("refined: rows 0 to 23, columns 0 to 27") for line in found.notes) == 1
