"""Jobs that `data.source` of kind slabs does not suit: each is refused when it starts, in one line
with the remedy.
"""

from contextlib import closing

import pytest
import synthetic
import thread_ranks
import tiny
from divided_samples import SCAN, experiment, split, write
from kernel_counts import read_counts

from namsa.base.errors import DifferentError, InputError
from namsa.dataset import records
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.dataset.slab_file import write_slab_file
from train.experiment.experiment import Experiment
from train.input.batches import batches
from train.input.source import TrainingSet, source_of
from train.input.views import ReadCache
from train.phases.plan import TrainingSamples
from train.strategies.source.slabs.section import Slabs

TILES = (1, 1, 2, 1)


def exported(folder, job, count=3):
    """The entries of `count` samples, and the job that reads its parts from a file of them."""
    entries = write(folder, job, TILES, count)
    with Dataset(folder) as dataset:
        write_slab_file(folder / "slabs.h5", dataset)
    return entries, from_file(job, folder / "slabs.h5")


def with_data(job, **data):
    return job.model_copy(update={"data": job.data.model_copy(update=data)})


def from_file(job, path):
    return with_data(job, source=Slabs(file=path))


def opened(folder, job, entries, axis="y"):
    lines = []

    def on_rank(rank):
        with Dataset(folder) as dataset:
            source = source_of(job)
            training = TrainingSet(dataset, entries, (0, 0), rank, split(axis, 1))
            with closing(source):
                samples = TrainingSamples(source, job, training, lines.append)
                for epoch in range(
                    2
                ):  # the first compares digests, and TensorFlow reads files of its own
                    with read_counts() as counts:
                        list(
                            batches(
                                dataset, entries, job, epoch, ReadCache(), own_part=samples.own_part
                            )
                        )
        return counts["asked"], lines

    (result,) = thread_ranks.run([[0]], on_rank)
    if isinstance(result, Exception):
        raise result
    return result


def test_batches_of_parts_read_them_alone(tmp_path):
    entries, job = exported(tmp_path, experiment("detector", "y", TILES), count=4)
    asked, lines = opened(tmp_path, job, entries)
    patterns, image = job.sample_shapes()
    wanted = 4 * (
        2 * patterns[0] * patterns[1] * patterns[2] * patterns[3] + 4 * image[0] * image[1]
    )
    assert wanted <= asked < wanted + 64  # the counter itself is read, too
    assert lines == [
        f"parts of samples are read from {tmp_path / 'slabs.h5'}",
        "every rank reads 1/2 of the patterns of a sample",
    ]


def test_files_of_other_samples_are_refused(tmp_path):
    entries, job = exported(tmp_path, experiment("detector", "y", TILES))
    (tmp_path / "more").mkdir()
    more = write(tmp_path / "more", job, TILES, 5)
    with pytest.raises(
        InputError, match=r"slabs.h5 lacks 2 of 5 training samples, as sample-3: .*--tiles again"
    ):
        opened(tmp_path / "more", job, more)
    with pytest.raises(InputError, match="slabs.h5 holds float32 patterns: set data.dtype=float32"):
        opened(tmp_path, with_data(job, dtype="float16"), entries)
    other = job.model_copy(update={"scan": job.scan.model_copy(update={"shape": (8, 4)})})
    with pytest.raises(
        InputError,
        match=r"slabs.h5 holds patterns \(4, 8, 8, 12\) .* the configuration has \(8, 4, ",
    ):
        opened(tmp_path, other, entries)
    message = (
        r"slabs.h5 has tiles \[1, 1, 2, 1\], .* samples, which lack tiles: simulate them with "
        r"data.tiles=\[1, 1, 1, 2\]"
    )
    with pytest.raises(InputError, match=message):
        opened(tmp_path, job, entries, "x")
    with pytest.raises(InputError, match="there is no file .*none.h5"):
        opened(tmp_path, from_file(job, tmp_path / "none.h5"), entries)


def test_files_of_another_configuration_are_refused(tmp_path):
    entries, job = exported(tmp_path, experiment("detector", "y", TILES))

    def on_rank(rank):
        with Dataset(tmp_path) as dataset:
            dataset.config_hash = "1"
            return source_of(job).open(TrainingSet(dataset, entries, (0, 0), rank, split("y", 0)))

    (error,) = thread_ranks.run([[0]], on_rank)
    assert isinstance(error, InputError)
    assert "slabs.h5 holds samples of another configuration than data.directory" in str(error)


def test_jobs_that_need_whole_samples_are_refused(tmp_path):
    job = experiment("detector", "y", TILES, augment=True)
    entries, job = exported(tmp_path, job)
    with pytest.raises(
        InputError,
        match="read parts alone, and every rank reads whole samples: training has inputs.augment",
    ):
        opened(tmp_path, job, entries)


def test_jobs_that_do_not_divide_samples_are_refused():
    with pytest.raises(
        ValueError, match="training.split.ways is 1: raise it to 2 or more, or leave the source out"
    ):
        Experiment.model_validate(
            tiny.CONFIG | {"data": {"source": {"kind": "slabs", "file": "slabs.h5"}}}
        )


@pytest.mark.parametrize("tiles", [TILES, (1, 1, 1, 1)])
def test_a_file_of_the_same_ids_and_other_values_is_refused(tmp_path, tiles):
    """Of other tiles, by the densities."""
    entries, job = exported(tmp_path, experiment("detector", "y", TILES))
    (tmp_path / "other").mkdir()
    with ShardWriter(shard_path(tmp_path / "other", 0)) as writer:
        for seed, entry in enumerate(entries):
            sample = synthetic.sample(
                seed + (seed == 1), SCAN, job.sample_shapes()[1], config_hash="0"
            )
            writer.put(entry.id, records.encode(sample, "float32", tiles))
    with pytest.raises(DifferentError, match="with 1 other sample than data.directory") as refused:
        opened(tmp_path / "other", job, entries)
    assert [line.split(":")[0].strip() for line in str(refused.value).splitlines()[1:-1]] == [
        "sample-1"
    ]
    assert "namsa export DATASET --tiles again" in str(refused.value)
