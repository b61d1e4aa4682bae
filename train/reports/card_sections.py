"""The sections of a model card that do not depend on the task: what data it takes, limits, dataset
and training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from namsa.base.text import duration, plural
from namsa.config.numerics import Simulation
from namsa.config.specimen import KINDS
from namsa.dataset.strata import Strata
from namsa.figures.document import (
    Block,
    DocumentSection,
    Paragraph,
    Preformatted,
    Table,
    Text,
    code,
)

from ..experiment.conditions import (
    defocus_angstrom,
    describe_dose,
    describe_imperfections,
    describe_thickness,
    describe_varied,
    format_range,
    has_films_alone,
)
from ..experiment.experiment import Experiment
from ..measure.groups import measured, title
from ..measure.results import RunFacts
from ..program import PROGRAM
from .held_out import held_out_words
from .results import WeightsFile
from .words import pair, times, zones

NETWORKS = {
    "fcdensenet": "FC-DenseNet",
    "resnet50": "ResNet-50",
    "cvae": "Convolutional variational autoencoder",
    "deeplabv3plus": "DeepLabv3+",
    "cosmoflow": "CosmoFlow",
    "unet3d": "3-D U-Net",
    "lenet": "LeNet-5",
    "alexnet": "AlexNet",
    "vgg": "VGG",
    "function": "Network of a function",
}


SIGNS = {"defocus_angstrom": " (of the entrance; underfocus > 0)"}


@dataclass(frozen=True)
class Usage:
    """Application of a network to a file."""

    answer: str  # what it makes of a file, a sentence
    command: str  # the command, as "reconstruct"
    out: str  # the file that the command writes, as "DENSITY.h5"
    # whether the network sees one pattern at a time, so that a scan may have any step
    by_pattern: bool = False
    windows: str = "in overlapping windows"  # how a scan is divided otherwise
    # how a quantity is checked, by its key of the configuration
    checks: Mapping[str, Text] = field(default_factory=dict)
    other_checks: str = "not checked"  # the same for all others


def purpose(name: str, experiment: Experiment, usage: Usage) -> list[Block]:
    """Returns the network's use, and the data that it takes."""
    command = f"{PROGRAM} {usage.command} DATA.h5 --checkpoint {name} --out {usage.out}"
    return [
        Paragraph(usage.answer),
        Preformatted(command),
        Table(
            ("", "trained for", (code(usage.command), " accepts")),
            [*_data_rows(experiment, usage), *_condition_rows(experiment, usage)],
            text_columns=3,
        ),
    ]


def _data_rows(experiment: Experiment, usage: Usage) -> list[Sequence[Text]]:
    """Returns the microscope, the scan and the detector, and which of them are accepted."""
    trained = experiment.conditions()
    scan_step = f"{pair(trained.scan_step_angstrom)} Å"
    detector = f"{times(trained.detector_shape)} pixels of {pair(trained.pixel_mrad)} mrad"
    reach = f"pixels up to twice that; must reach {trained.reach_mrad:g} mrad"
    rows: list[Sequence[Text]] = [
        ("energy", f"{trained.energy_ev / 1e3:g} keV", "± 2 %"),
        ("convergence semiangle", f"{trained.semiangle_mrad:g} mrad", "± 5 %"),
    ]
    if usage.by_pattern:
        rows.append(("scan step", scan_step, "any"))
        rows.append(("detector", detector, reach))
        rows.append(("window", "one pattern", "any scan, pattern by pattern"))
    else:
        positions = f"{times(trained.scan_shape)} positions"
        rows.append(("scan step", scan_step, "up to twice that; resampled"))
        rows.append(("detector", detector, reach))
        rows.append(("window", positions, f"any scan, {usage.windows}"))
    return rows


def _condition_rows(experiment: Experiment, usage: Usage) -> list[Sequence[Text]]:
    """Returns the specimens and the ranges of their conditions, and how they are checked."""
    ranges = {
        "thickness_angstrom": describe_thickness(experiment).removesuffix(" Å"),
        "defocus_angstrom": format_range(defocus_angstrom(experiment)),
        **describe_varied(experiment),
        "electrons_per_pattern": describe_dose(experiment.training.inputs) or "noiseless",
        **_fixed_aberrations(experiment),
        **describe_imperfections(experiment.training.inputs),
    }
    rows: list[Sequence[Text]] = [("specimens", _kinds(experiment), usage.other_checks)]
    for name, limits in ranges.items():
        checks = usage.checks.get(name, usage.other_checks)
        rows.append((title(name) + SIGNS.get(name, ""), limits, checks))
    return rows


def _fixed_aberrations(experiment: Experiment) -> dict[str, str]:
    """Returns the aberrations of the lens but defocus, by name with its unit."""
    aberrations = {}
    for key, value in experiment.microscope.aberrations.items():
        if value and key != "C10":
            unit = "_angstrom" if key.startswith("C") else ""
            aberrations[key + unit] = f"{value:g}"
    return aberrations


def training_limits(experiment: Experiment) -> list[Text]:
    """Returns limits that follow from the specimens and effects that training left out."""
    limits: list[Text] = [
        "The network was trained on simulations only. It has not been tried on measured data."
    ]
    left_out = [effect for effect, simulated in _effects(experiment).items() if not simulated]
    if left_out:
        limits.append(f"The training data leave out {', '.join(left_out)}.")
    limits.append(_orientations(experiment))
    if list(_shares(experiment)) == ["crystal"]:
        limits.append(
            "Training saw perfect, periodic crystals: no defects, surfaces, interfaces or "
            "amorphous specimens."
        )
    limits.append(
        f"{_last_training(experiment)} saw {_thicknesses(experiment)}. Nothing is known of "
        "specimens that are thicker or much thinner than these and those of the scores. Data files "
        "do not state the thickness."
    )
    return limits


def _effects(experiment: Experiment) -> dict[str, bool]:
    """Returns which effects the training samples have, by their names."""
    microscope = experiment.microscope
    detector = experiment.detector
    drawn = describe_imperfections(experiment.training.inputs) | experiment.varied_quantities()
    focal_spread = microscope.focal_spread_angstrom or microscope.chromatic_aberration_mm
    point_spread = detector and detector.point_spread_pixels
    return {
        "thermal vibration": _vibrates(experiment),
        "the source size": bool(microscope.source_size_angstrom) or "source_size_angstrom" in drawn,
        "the energy spread": bool(focal_spread) or "focal_spread_angstrom" in drawn,
        "the point spread of the detector": bool(point_spread) or "detector_spread_pixels" in drawn,
        "inelastic scattering": "background_fraction" in drawn,
        "drift": "drift_angstrom" in drawn,
    }


def _orientations(experiment: Experiment) -> str:
    """Returns how crystals of the training samples were oriented, as a limit."""
    count = experiment.specimen.simplest_zone_axes
    axes = f"one of the {count} simplest of each" if count else zones(experiment.specimen.zone_axes)
    tilts = []
    for name, limits in describe_varied(experiment).items():
        if "tilt" in name:
            tilts.append(measured(name, limits))
    if tilts:
        return f"Crystals were near a zone axis, {axes}: {', '.join(tilts)}."
    return f"Specimen and beam were not tilted: crystals were on a zone axis, {axes}."


def _thicknesses(experiment: Experiment) -> str:
    """Returns the thicknesses of the training samples in words."""
    if has_films_alone(experiment):
        return "films of one to three layers"
    listed = experiment.specimen.thickness_angstrom
    varied = experiment.varied_quantities().get("thickness_angstrom")
    if varied is None and len(listed) > 1:
        return f"thicknesses of {', '.join(f'{thickness:g}' for thickness in listed)} Å"
    return f"thicknesses of {describe_thickness(experiment)}"


def undrawn(experiment: Experiment) -> str:
    """Returns what scores on samples as they are stored leave out, if training draws it: the end of
    a phrase.
    """
    inputs = experiment.training.inputs
    drawn = (("noise", inputs.dose_electrons_per_pattern), ("imperfections", inputs.imperfections))
    names = " and ".join(name for name, settings in drawn if settings)
    return f", without the {names} that training draws" if names else ""


def unseen(experiment: Experiment, strata: Strata) -> list[Text]:
    """Returns the kinds of specimens, and elements of held-out samples, of which there was no
    training sample, as limits.
    """
    limits: list[Text] = []
    kinds = strata.get("kinds", {})
    seen = [kind for kind, counts in kinds.items() if counts["train"]] or ["crystal"]
    unseen_kinds = [kind.replace("_", " ") for kind in KINDS if kind not in seen]
    if list(_shares(experiment)) != ["crystal"]:
        limits.append(
            f"{_last_training(experiment)} had no sample of these kinds of specimens: "
            f"{', '.join(unseen_kinds)}."
        )
    elements = strata["elements_not_in_train"]
    if elements:
        limits.append(
            f"Elements that are held out and not in the training samples: {', '.join(elements)}."
        )
    return limits


SEPARATIONS = {
    "formula": "No formula is in two splits.",
    "prototype": "No formula and no prototype (kind of formula and space group) is in two splits.",
}


def data(experiment: Experiment, strata: Strata) -> DocumentSection:
    """Returns the section about the dataset."""
    splits = list(strata["samples"])
    rows = []
    counted = {
        "samples": strata["samples"],
        "materials": strata["materials"],
        "formulas": strata["formulas"],
    }
    for name, counts in counted.items():
        rows.append((name, *(str(counts[split]) for split in splits)))
    elements = [element for element, counts in strata["elements"].items() if counts["train"]]
    sentences = [
        f"{SEPARATIONS[experiment.split.by]} Crystals: {', '.join(strata['sources'])}.",
        f"Crystal systems of the training samples: {_counts(strata['crystal_systems'])}.",
    ]
    if "kinds" in strata:
        sentences.append(f"Kinds of the training samples: {_counts(strata['kinds'])}.")
    sentences.append(f"{len(elements)} elements in training: {', '.join(elements)}.")
    sentences.append(
        f"Simulated by multislice, {experiment.simulation.form_factors} form factors, "
        f"{slices(experiment.simulation)}; hash of the samples {experiment.samples_hash()}, seed "
        f"{experiment.seed}."
    )
    table = Table(("", *splits), rows, text_columns=1)
    return DocumentSection("Data", (table, Paragraph(" ".join(sentences))))


def slices(simulation: Simulation) -> str:
    """Returns how thick slices are, in words."""
    thickness = simulation.slice_thickness_angstrom
    if thickness == "auto":
        return f"slices for errors of {simulation.accuracy:.3g} of the patterns"
    return f"slices of {thickness:g} Å"


def training(
    experiment: Experiment,
    run: RunFacts,
    training_s: float,
    started_from: Sequence[str],
    weights: Sequence[Sequence[Text]],
    chosen: str = "",
) -> DocumentSection:
    """Returns the section about the run.

    Args:
        training_s: Time in the training steps, s.
        started_from: Trainings before it, the newest first.
        weights: Rows about the weights, as of `weights_rows`.
        chosen: Which weights of the run these are, if not the last.
    """
    network = (
        f"{NETWORKS[experiment.network.kind]}, {run['parameters']:,} parameters, "
        f"{experiment.training.inputs.channel_summary()}"
    )
    trained = (
        f"{run['epochs']} epochs, {run['steps']:,} steps, {run['training_samples']:,} "
        f"samples{chosen}"
    )
    machine = f" of {run['machine']}" if run.get("machine") else ""
    versions = [f"{name} {version}" for name, version in run["versions"].items()]
    rows: list[Sequence[Text]] = [
        ("network", network),
        ("trained", trained),
        ("started from", ", from ".join(started_from)),
        ("held-out materials", held_out_words(run)),
        ("time in steps", duration(training_s)),
        ("on", f"{plural(run['ranks'], 'rank')}, each on {run['device']}{machine}"),
        ("versions", ", ".join(versions)),
        *weights,
    ]
    return DocumentSection("Training", (Table(("", ""), rows, text_columns=2),))


def weights_rows(weights: WeightsFile, rounding: str, command: str) -> list[Sequence[Text]]:
    """Returns rows about the weights file.

    Args:
        rounding: Changes of the answers by rounding, in words.
        command: Command that writes the digest of the weights into its results.
    """
    size = f"{weights['bytes'] / 1e6:.2f} MB, {weights['dtype']}"
    digest = (code(weights["digest"]), ", which ", code(command), " writes into its results")
    return [
        ("weights", f"{size}: compared with float32, {rounding}"),
        ("SHA-256", code(weights["sha256"])),
        ("digest", digest),
    ]


def _last_training(experiment: Experiment) -> str:
    """Returns the name of the training of which the samples are known, in the limits."""
    if experiment.training.start_from:
        return "The last training"
    return "Training"


def _shares(experiment: Experiment) -> Mapping[str, float]:
    """The shares of the kinds of specimens that training has."""
    kinds = experiment.specimen.kinds or {"crystal": 1.0}
    return {kind: share for kind, share in kinds.items() if share}


def _kinds(experiment: Experiment) -> str:
    """The kinds of specimens that were trained for, with their shares."""
    shares = _shares(experiment)
    if len(shares) == 1:
        return "crystals, perfect and periodic"
    total = sum(shares.values())
    parts = []
    for kind, share in shares.items():
        parts.append(f"{kind.replace('_', ' ')} {share / total:.0%}")
    return ", ".join(parts)


def _vibrates(experiment: Experiment) -> bool:
    """Whether atoms were displaced by a temperature."""
    phonons = experiment.specimen.frozen_phonons
    varied = experiment.varied_quantities()
    still = phonons is None or not (phonons.rms_angstrom or phonons.b_factor_angstrom2)
    return not still or "rms_displacement_angstrom" in varied


def _counts(by_value: Mapping[str, Mapping[str, int]]) -> str:
    """Training samples by value."""
    texts = []
    for value, counts in by_value.items():
        if counts["train"]:
            texts.append(f"{value} {counts['train']}")
    return ", ".join(texts)
