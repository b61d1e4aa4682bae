"""The page of the networks lists those that come with the package, with their conditions."""

from paths import ROOT

from train.apply.models import shipped
from train.reports.words import pair, times

PAGE = (ROOT / "docs/which_network.md").read_text(encoding="utf-8")


def rows():
    """The cells of all table rows that begin with a network's name, by that name."""
    cells = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            name, *values = (cell.strip() for cell in line.strip("|").split("|"))
            cells[name.strip("`")] = values
    return cells


def test_every_shipped_network_is_listed_with_its_conditions():
    listed = rows()
    assert sorted(listed) == sorted(model.name for model in shipped())
    for model in shipped():
        trained = model.conditions
        assert {
            f"{trained.energy_ev / 1e3:g} keV",
            f"{trained.semiangle_mrad:g} mrad",
            f"{pair(trained.scan_step_angstrom)} Å",
            f"{times(trained.detector_shape)} of {pair(trained.pixel_mrad)} mrad",
        } <= set(listed[model.name])


def test_ranges_of_thickness_and_defocus_are_those_of_the_training():
    listed = rows()
    for model in shipped():
        variation = model.experiment.variation
        if model.experiment.training.task != "density":
            continue
        least, most = variation.defocus_angstrom
        assert f"{least:g} to {most:g} Å".replace("-", "−") in listed[model.name]
        if variation.thickness_angstrom:
            least, most = variation.thickness_angstrom
            assert f"{least:g} to {most:g} Å" in listed[model.name]
