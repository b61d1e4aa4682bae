"""A small dataset for tests to damage."""

import shutil
from pathlib import Path

import fake_samples
import pytest

from namsa.dataset import listing


@pytest.fixture(scope="module")
def stored_dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
        fake_samples.produce(folder)
    return folder


@pytest.fixture
def d(stored_dataset, tmp_path, monkeypatch):
    """A copy of the dataset, as d in the working directory."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return Path(shutil.copytree(stored_dataset, "d"))
