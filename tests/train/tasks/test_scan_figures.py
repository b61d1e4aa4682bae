"""The figures of scans that networks of the tasks were applied to."""

import numpy as np
import pytest

from namsa.base.pixels import PixelGrid
from train.tasks.classify.figure import class_figure
from train.tasks.embed.figure import embedding_figure
from train.tasks.segment.pictures import segments_figure

SHAPE = (4, 6)
PIXELS = PixelGrid((0.4, 0.4), (0.0, 0.0))


def classified():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), SHAPE).transpose(2, 0, 1)
    return class_figure(probabilities, ["20", "40", "60"], "thickness", PIXELS, "scan.h5")


def segmented():
    labels = np.zeros(SHAPE, np.uint8)
    labels[2:, 3:] = 1
    probabilities = {name: np.full(SHAPE, 1 / 3) for name in ("matrix", "grain", "phase")}
    return segments_figure(np.ones(SHAPE), labels, probabilities, PIXELS, "scan.h5")


def embedded(latent):
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(*SHAPE, latent))
    clusters = rng.integers(0, 2, SHAPE)

    def decode(points):
        return np.ones((len(points), 5, 5))

    return embedding_figure(latents, clusters, np.ones(SHAPE), PIXELS, decode, "scan.h5")


@pytest.mark.parametrize(
    ("draw", "letters"),
    [
        (classified, "abc"),
        (segmented, "abc"),
        (lambda: embedded(3), "abcdef"),
        (lambda: embedded(1), "abcde"),
    ],
    ids=["classify", "segment", "embed", "embed_one"],
)
def test_each_panel_has_a_letter(draw, letters):
    drawn = [ax for ax in draw().axes if ax.axison]
    assert [ax.texts[-1].get_text() for ax in drawn] == [f"({letter})" for letter in letters]
