"""A rank's part of a batch, read alone, is the part of the whole batch to the bit."""

from contextlib import closing, contextmanager

import numpy as np
import pytest
from divided_samples import DETECTOR, experiment, split, write
from kernel_counts import read_counts

from namsa import WorkError
from namsa.dataset import lmdb_structure
from namsa.dataset.shards import Dataset, shard_path
from train.input.batches import batches
from train.input.source import SampleSource, TrainingSet
from train.input.views import ReadCache
from train.ranks.single import SingleProcess
from train.strategies.division.parts.division import slab_of

CASES = [
    ("detector", "y", (1, 1, 2, 1), {"coordinates": True}),
    ("detector", "x", (1, 1, 4, 4), {"power": 1.0, "data_format": "channels_first"}),
    ("detector", "x", None, {}),
    ("scan", "y", (2, 1, 1, 1), {}),
    ("scan", "x", (2, 4, 1, 1), {"channels": "virtual", "data_format": "channels_first"}),
]


@contextmanager
def opened(dataset, job, division, entries):
    source = SampleSource(job.data.source, job)
    source.open(TrainingSet(dataset, entries, (0, 0), SingleProcess(), division))
    with closing(source):
        yield source


@pytest.mark.parametrize(("layout", "axis", "tiles", "options"), CASES)
def test_the_part_of_a_batch_has_the_bits_of_the_whole_one(tmp_path, layout, axis, tiles, options):
    job = experiment(layout, axis, tiles, **options)
    entries = write(tmp_path, job, tiles)
    with Dataset(tmp_path) as dataset, opened(dataset, job, split(axis, 0), entries) as source:
        for part in range(2):
            divided = split(axis, part)
            own_part, line = divided.own_part(source, job, entries)
            assert line.endswith(
                "data.tiles=[1, 1, 1, 2]" if tiles is None else "1/2 of the patterns of a sample"
            )
            for epoch in range(2):
                full_batches = batches(
                    dataset, entries, job, epoch, ReadCache(), take_part=divided.take_part
                )
                part_batches = batches(dataset, entries, job, epoch, ReadCache(), own_part=own_part)
                for expected, batch in zip(full_batches, part_batches, strict=True):
                    for a, b in zip(expected, batch, strict=True):
                        assert a.shape == b.shape
                        np.testing.assert_allclose(
                            a, b, rtol=1e-6 if "channels" in options else 0, atol=0
                        )
            assert len(own_part.checked) == len(entries)


def test_batches_of_parts_leave_the_rest_on_the_disk(tmp_path):
    job = experiment("detector", "y")
    entries = write(tmp_path, job, (1, 1, 2, 1))
    all_bytes = sum(size for _, size in lmdb_structure.locations(shard_path(tmp_path, 0)).values())
    with Dataset(tmp_path) as dataset, opened(dataset, job, split("y", 1), entries) as source:
        own_part, _ = split("y", 1).own_part(source, job, entries)
        counts = {}
        for epoch in range(2):
            with read_counts() as counts[epoch]:
                list(batches(dataset, entries, job, epoch, own_part=own_part))
        patterns = sum(dataset.read(entry.id).cbed.nbytes for entry in entries)
        density = 4 * len(entries) * np.prod(DETECTOR)
    wanted = patterns // 2 + density
    assert wanted <= counts[1]["asked"] < wanted + 64 < all_bytes  # the counter itself is read, too
    assert 0 < counts[0]["asked"] - counts[1]["asked"] < 4096 * len(entries)  # the headers, once


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({}, None),
        ({"augment": True}, "inputs.augment"),
        ({"dose_electrons_per_pattern": 100.0}, "inputs.dose_electrons_per_pattern"),
        ({"redraw_epochs": 3}, "inputs.redraw_epochs"),
    ],
)
def test_what_needs_whole_samples_says_so(inputs, reason):
    job = experiment("detector", "y", **inputs)
    assert job.training.split.whole_reason(job) == (reason and f"training has {reason}")


def test_a_sample_of_another_shape_is_refused(tmp_path):
    job = experiment("detector", "y")
    entries = write(tmp_path, job, (1, 1, 2, 1), count=2)
    other = job.model_copy(update={"scan": job.scan.model_copy(update={"shape": (8, 4)})})
    with Dataset(tmp_path) as dataset, opened(dataset, job, split("y", 0), entries) as source:
        own_part, _ = split("y", 0).own_part(source, other, entries)
        with pytest.raises(
            WorkError, match=r"sample-0 holds patterns \(4, 8, 8, 12\) .*give its samples another"
        ):
            list(batches(dataset, entries, other, 0, own_part=own_part))


def test_slabs_lie_along_the_axes_of_the_image():
    assert slab_of(experiment("detector", "x"), axis=1, part=1, ways=2).index[3:] == (slice(6, 12),)
    assert slab_of(experiment("scan", "y"), axis=0, part=1, ways=2).index == (slice(2, 4),)
