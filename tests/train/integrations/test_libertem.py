"""In LiberTEM the density is that of `train.reconstruct`. `scripts/other_programs.sh` runs this
with LiberTEM.
"""

import numpy as np
import pytest

import train
from namsa import InputError

lt = pytest.importorskip("libertem.api")
from train.integrations.libertem import DensityUDF  # noqa: E402 - after LiberTEM

NETWORK = "200kv-20mrad-fast"
KNOWN = train.CalibrationOverrides(
    energy_ev=200e3, semiangle_mrad=20.0, scan_step_angstrom=0.4, pixel_mrad=2.0
)


@pytest.fixture(scope="module")
def counts():
    """A scan of 52 × 44 patterns that differ, one of them lost; partitions end within rows."""
    rng = np.random.default_rng(3)
    k = np.arange(53) - 26
    disk = np.hypot(k[:, None], k) < 10
    y, x = np.ogrid[:52, :44]
    field = (
        1
        + 0.5
        * np.cos(y / 3)[..., None, None]
        * np.cos(x / 4)[..., None, None]
        * np.cos(k / 3)[:, None]
    )
    counts = rng.poisson(3 * disk * field).astype(np.uint16)
    counts[20, 7] = 0
    return counts


@pytest.fixture(scope="module")
def context():
    with lt.Context.make_with("inline") as context:
        yield context


def load(context, counts):
    return context.load("memory", data=counts, sig_dims=2, num_partitions=7)


@pytest.mark.parametrize("beam", [None, 1e3])
def test_the_density_is_that_of_reconstruct_and_grows(context, counts, beam):
    expected = train.reconstruct(counts, NETWORK, KNOWN, beam_intensity=beam)
    dataset = load(context, counts)
    udf = DensityUDF.of(context, dataset, NETWORK, KNOWN, beam_intensity=beam)
    known = []
    for result in context.run_udf_iter(dataset=dataset, udf=udf):
        known.append(int(np.isfinite(result.buffers[0]["density"].data).any(axis=1).sum()))
    assert known == sorted(known)
    assert 0 < known[len(known) // 2] < 52
    for name in ("density", "uncertainty"):
        np.testing.assert_array_equal(result.buffers[0][name].data, getattr(expected, name))
    reconstruction = udf.reconstruction
    np.testing.assert_array_equal(reconstruction.bright_field, expected.bright_field)
    np.testing.assert_allclose(reconstruction.mean_pattern, expected.mean_pattern)
    assert reconstruction.notes[1:] == expected.notes[1:]
    assert reconstruction.provenance["lost_patterns"] == [[20, 7]]


def test_threads_give_the_same(counts):
    with lt.Context.make_with("threads", cpus=2) as context:
        dataset = load(context, counts)
        udf = DensityUDF.of(context, dataset, NETWORK, KNOWN)
        result = context.run_udf(dataset=dataset, udf=udf)
    np.testing.assert_array_equal(
        result["density"].data, train.reconstruct(counts, NETWORK, KNOWN).density
    )


def test_what_does_not_fit_is_refused(context, counts):
    dataset = load(context, counts)
    for changes, message in (
        ({"energy_ev": 300e3}, "energy"),
        ({"bad_pixels": ((1, 2),)}, "corrected in LiberTEM"),
    ):
        with pytest.raises(InputError, match=message):
            DensityUDF.of(
                context, dataset, NETWORK, train.CalibrationOverrides(**(vars(KNOWN) | changes))
            )
    frames = context.load("memory", data=counts[0], sig_dims=2)
    with pytest.raises(InputError, match="give one of"):
        DensityUDF.of(context, frames, NETWORK, KNOWN)
