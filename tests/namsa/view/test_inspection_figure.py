"""The figure of an inspected scan."""

import numpy as np

import namsa


def test_each_panel_has_a_letter():
    disk = np.hypot(*np.ogrid[-15.5:16:1, -16.2:17]) < 10
    counts = np.random.default_rng(2).poisson(30 * disk, (8, 9, *disk.shape)).astype(np.uint16)
    inspection = namsa.inspect(
        counts, energy_ev=200e3, semiangle_mrad=20, scan_step_angstrom=0.4, pixel_mrad=2
    )
    drawn = [ax for ax in namsa.draw_inspection(inspection).axes if ax.images]
    assert len(drawn) > 3
    written = [ax.texts[-1].get_text() for ax in drawn]
    letters = "abcdefg"[: len(drawn)]
    assert sorted(written) == [f"({letter})" for letter in letters]
    widest = max(drawn, key=lambda ax: ax.get_position().width)
    assert widest.texts[-1].get_text() == "(a)"
