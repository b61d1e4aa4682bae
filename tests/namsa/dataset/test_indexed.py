"""Samples by number, as PyTorch and Grain ask for them. Both are in an environment of
`scripts/other_programs.sh`.
"""

import multiprocessing
import operator
import pickle
import shutil

import fake_samples
import numpy as np
import pytest

import namsa
from namsa import InputError, WorkError
from namsa.dataset import listing


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """12 samples in two shards; those of copper are held out."""
    folder = tmp_path_factory.mktemp("data")
    settings = fake_samples.config(split={"train": 0.6, "dev": 0, "test": 0.4})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
        for rank in range(2):
            fake_samples.produce(folder, rank, 2, settings=settings)
    return folder


def same(item, other):
    return set(item) == set(other) and all(np.array_equal(item[name], other[name]) for name in item)


def test_items_are_the_stored_numbers_of_the_split_in_the_order_of_the_manifest(folder):
    arrays = ("cbed", "density", "projected_potential", "positions_angstrom")
    with namsa.Dataset(folder) as dataset:
        stored = {name: dataset.read(name) for name in dataset.ids}
    seen = []
    for split in ("train", "test"):
        with namsa.IndexedSamples(folder, split, arrays=arrays) as samples:
            for entry, item in zip(samples.entries, samples, strict=True):
                record = stored[entry.id]
                assert entry.split == split
                assert item["cbed"].shape == (2, 3, 5, 7)
                assert item["cbed"].tobytes() == record.cbed.tobytes()
                np.testing.assert_array_equal(
                    item["cbed"].reshape(6, 5, 7) / item["scale"], record.patterns()
                )
                for name in arrays[1:]:
                    assert np.array_equal(item[name], getattr(record, name))
                item["cbed"][...] = 0  # its own, not a page of the file
                seen.append(entry.id)
            assert same(samples[-1], samples[len(samples) - 1])
            with pytest.raises(IndexError):
                samples[len(samples)]
    assert sorted(seen) == sorted(stored)
    assert len(set(seen)) == 12


def test_a_copy_has_the_samples_of_the_first(folder):
    with namsa.IndexedSamples(folder, "test") as samples:
        stored = pickle.dumps(samples)
        item = samples[0]
        ids = [entry.id for entry in samples.entries]
        with pickle.loads(stored) as copy:  # in the same process: it shares the files
            assert same(copy[0], item)
        assert same(samples[0], item)
    with pickle.loads(stored) as copy:
        assert [entry.id for entry in copy.entries] == ids
        assert same(copy[0], item)


def test_both_splits_are_open_at_once_and_the_last_one_closes_the_files(folder):
    train = namsa.IndexedSamples(folder, "train")
    test = namsa.IndexedSamples(folder, "test")
    with pytest.raises(WorkError, match="already open"):
        namsa.Dataset(folder)
    assert train[0]["cbed"].shape == test[0]["cbed"].shape
    train.close()
    train.close()
    assert test[0]["cbed"].shape == (2, 3, 5, 7)
    with pytest.raises(InputError, match="are closed: open them again"):
        train[0]
    test.close()
    namsa.Dataset(folder).close()


def test_a_process_that_is_spawned_gets_a_copy_while_both_splits_are_open(folder):
    with (
        namsa.IndexedSamples(folder, "train") as train,
        namsa.IndexedSamples(folder, "test") as test,
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        for samples in (train, test):
            assert same(pool.apply(operator.getitem, (samples, -1)), samples[-1])


def test_numbers_count_from_the_end_and_slices_are_lists(folder):
    with namsa.IndexedSamples(folder) as samples:
        count = len(samples)
        items = samples[:]
        assert len(items) == count
        for index in range(count):
            assert same(samples[index - count], items[index])
        assert [item["scale"] for item in samples[::-2]] == [item["scale"] for item in items[::-2]]
        assert samples[count : 2 * count] == []
        for index in (count, -count - 1, 10**30):
            with pytest.raises(IndexError, match=f"no sample {index}: the split train of .* has"):
                samples[index]
        for wrong in ("0", 0.0, None, (0, 1)):
            with pytest.raises(TypeError, match="an integer or a slice, not by"):
                samples[wrong]
        assert same(samples[np.int64(1)], items[1])


@pytest.mark.parametrize(
    ("check", "noticed"),
    [("always", [True, True]), ("once", [True, True]), ("never", [False, False])],
)
def test_a_flipped_bit_is_noticed_where_a_record_is_compared(folder, tmp_path, check, noticed):
    copy = tmp_path / "data"
    shutil.copytree(folder, copy)
    with namsa.IndexedSamples(copy) as samples:
        stored = samples[0]["density"].tobytes()
    for path in copy.glob("*.lmdb"):
        contents = bytearray(path.read_bytes())
        place = contents.find(stored)
        if place >= 0:
            contents[place] ^= 1
            path.write_bytes(contents)
    raised = []
    with namsa.IndexedSamples(copy, check=check) as samples:
        for _ in range(2):
            try:
                samples[0]
            except WorkError:
                raised.append(True)
            else:
                raised.append(False)
    assert raised == noticed


@pytest.mark.parametrize("check", ["once", "never"])
def test_items_that_are_read_again_are_the_same_and_their_own(folder, check):
    with (
        namsa.IndexedSamples(folder, check=check) as samples,
        pytest.MonkeyPatch.context() as patch,
    ):
        item = samples[2]
        patch.setattr(
            namsa.dataset.records, "decode", lambda *_: pytest.fail("it is decoded again")
        )
        again = samples[2]
        assert same(item, again)
        again["cbed"][...] = 0
        assert same(samples[2], item)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"check": "sometimes"}, "choose always, once, never"),
        ({"split": "dev"}, "no sample of the split dev"),
        ({"split": "all"}, "choose train, dev, test"),
        ({"arrays": ("cbed", "energy")}, "arrays has energy"),
    ],
)
def test_what_is_not_there_is_refused(folder, changes, message):
    with pytest.raises(InputError, match=message):
        namsa.IndexedSamples(folder, **changes)
    with (
        namsa.IndexedSamples(folder, arrays=("labels",)) as samples,
        pytest.raises(InputError, match="has no labels"),
    ):
        samples[0]


def test_pytorch_loads_batches_in_processes(folder):
    data = pytest.importorskip("torch").utils.data
    with namsa.IndexedSamples(folder) as samples:
        expected = [samples[index] for index in range(len(samples))]
        for method in ("fork", "spawn"):
            loader = data.DataLoader(
                samples, batch_size=2, num_workers=2, multiprocessing_context=method
            )
            batches = list(loader)
            for name in ("cbed", "density", "scale"):
                stacked = np.concatenate([batch[name].numpy() for batch in batches])
                np.testing.assert_array_equal(stacked, np.stack([item[name] for item in expected]))
        assert str(batches[0]["cbed"].dtype) == "torch.float16"


def test_grain_loads_batches_in_threads_and_processes(folder):
    grain = pytest.importorskip("grain")
    with namsa.IndexedSamples(folder) as samples:
        assert isinstance(samples, grain.sources.RandomAccessDataSource)
        expected = sorted(samples[index]["density"].tobytes() for index in range(len(samples)))
        pipeline = grain.MapDataset.source(samples).shuffle(seed=1).to_iter_dataset().batch(2)
        processes = pipeline.mp_prefetch(
            grain.multiprocessing.MultiprocessingOptions(num_workers=2)
        )
        for loader in (pipeline, processes):
            densities = []
            for batch in loader:
                for density in batch["density"]:
                    densities.append(density.tobytes())
            assert sorted(densities) == expected
