"""Samples by number, as PyTorch and Grain ask for them. Both are in an environment of `scripts/other_programs.sh`."""

import pickle

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
                np.testing.assert_array_equal(item["cbed"].reshape(6, 5, 7) / item["scale"], record.patterns())
                assert all(np.array_equal(item[name], getattr(record, name)) for name in arrays[1:])
                item["cbed"][...] = 0  # its own, not a page of the file
                seen.append(entry.id)
            assert same(samples[-1], samples[len(samples) - 1])
            with pytest.raises(IndexError):
                samples[len(samples)]
    assert sorted(seen) == sorted(stored)
    assert len(set(seen)) == 12


def test_a_copy_has_the_samples_of_the_first(folder):
    with namsa.IndexedSamples(folder, "test") as samples:
        stored, first, ids = pickle.dumps(samples), samples[0], [entry.id for entry in samples.entries]
        with pytest.raises(WorkError, match="already open"):
            pickle.loads(stored)
    with pickle.loads(stored) as copy:
        assert [entry.id for entry in copy.entries] == ids
        assert same(copy[0], first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "dev"}, "no sample of the split dev"),
        ({"split": "all"}, "choose train, dev, test"),
        ({"arrays": ("cbed", "energy")}, "arrays has energy"),
    ],
)
def test_what_is_not_there_is_refused(folder, changes, message):
    with pytest.raises(InputError, match=message):
        namsa.IndexedSamples(folder, **changes)
    with namsa.IndexedSamples(folder, arrays=("labels",)) as samples, pytest.raises(InputError, match="has no labels"):
        samples[0]


def test_pytorch_loads_batches_in_processes(folder):
    data = pytest.importorskip("torch").utils.data
    with namsa.IndexedSamples(folder) as samples:
        expected = [samples[number] for number in range(len(samples))]
        for method in ("fork", "spawn"):
            loader = data.DataLoader(samples, batch_size=2, num_workers=2, multiprocessing_context=method)
            batches = list(loader)
            for name in ("cbed", "density", "scale"):
                found = np.concatenate([batch[name].numpy() for batch in batches])
                np.testing.assert_array_equal(found, np.stack([item[name] for item in expected]))
        assert str(batches[0]["cbed"].dtype) == "torch.float16"


def test_grain_loads_batches_in_threads_and_processes(folder):
    grain = pytest.importorskip("grain")
    with namsa.IndexedSamples(folder) as samples:
        assert isinstance(samples, grain.sources.RandomAccessDataSource)
        expected = sorted(samples[number]["density"].tobytes() for number in range(len(samples)))
        pipeline = grain.MapDataset.source(samples).shuffle(seed=1).to_iter_dataset().batch(2)
        processes = pipeline.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=2))
        for each in (pipeline, processes):
            found = [density.tobytes() for batch in each for density in batch["density"]]
            assert sorted(found) == expected
