"""The sections of a model card that do not depend on the task: what data it takes, limits, dataset and training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from namsa.config.instrument import KINDS, Simulation
from namsa.dataset.strata import Strata
from namsa.text import duration, plural

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
from .markdown import pair, plain, section, table, times, zones
from .results import WeightsFile

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
}


SIGNS = {"defocus_angstrom": " (of the entrance; underfocus > 0)"}


@dataclass(frozen=True)
class Usage:
    """How a network is applied to a file."""

    answer: str  # what it makes of a file, a sentence
    command: str  # the command, as "reconstruct"
    out: str  # the file that the command writes, as "DENSITY.h5"
    by_pattern: bool = False  # whether the network sees one pattern at a time, so that a scan may have any step
    windows: str = "in overlapping windows"  # how a scan is divided otherwise
    checks: Mapping[str, str] = field(
        default_factory=dict
    )  # how a quantity is checked, by its key of the configuration
    other_checks: str = "not checked"  # the same for all others


def purpose(name: str, experiment: Experiment, usage: Usage) -> Iterator[str]:
    """What the network does, and the data that it takes."""
    trained = experiment.conditions()
    lens = experiment.microscope.aberrations.items()
    fixed = {key + "_angstrom" * key.startswith("C"): f"{value:g}" for key, value in lens if key != "C10" and value}
    ranges = {
        "thickness_angstrom": describe_thickness(experiment).removesuffix(" Å"),
        "defocus_angstrom": format_range(defocus_angstrom(experiment)),
        **describe_varied(experiment),
        "electrons_per_pattern": describe_dose(experiment.training.inputs) or "noiseless",
        **fixed,
        **describe_imperfections(experiment.training.inputs),
    }
    step = "any" if usage.by_pattern else "up to twice that; resampled"
    window = (f"{times(trained.scan_shape)} positions", f"any scan, {usage.windows}")
    if usage.by_pattern:
        window = ("one pattern", "any scan, pattern by pattern")
    yield f"# {plain(name)}"
    yield ""
    yield usage.answer
    yield ""
    yield f"    {PROGRAM} {usage.command} DATA.h5 --checkpoint {name} --out {usage.out}"
    yield ""
    yield from table(
        ("", "trained for", f"`{usage.command}` accepts"),
        [
            ("energy", f"{trained.energy_ev / 1e3:g} keV", "± 2 %"),
            ("convergence semiangle", f"{trained.semiangle_mrad:g} mrad", "± 5 %"),
            ("scan step", f"{pair(trained.scan_step_angstrom)} Å", step),
            (
                "detector",
                f"{times(trained.detector_shape)} pixels of {pair(trained.pixel_mrad)} mrad",
                f"pixels up to twice that; must reach {trained.reach_mrad:g} mrad",
            ),
            ("window", *window),
            ("specimens", _kinds(experiment), usage.other_checks),
            *(
                (title(name) + SIGNS.get(name, ""), limits, usage.checks.get(name, usage.other_checks))
                for name, limits in ranges.items()
            ),
        ],
    )


def training_limits(experiment: Experiment) -> Iterator[str]:
    """What the training left out, with the heading of the limits."""
    specimen, microscope = experiment.specimen, experiment.microscope
    drawn = describe_imperfections(experiment.training.inputs) | experiment.varied_quantities()
    effects = (
        ("thermal vibration", _vibrates(experiment)),
        ("the source size", microscope.source_size_angstrom or "source_size_angstrom" in drawn),
        (
            "the energy spread",
            microscope.focal_spread_angstrom or microscope.chromatic_aberration_mm or "focal_spread_angstrom" in drawn,
        ),
        (
            "the point spread of the detector",
            (experiment.detector and experiment.detector.point_spread_pixels) or "detector_spread_pixels" in drawn,
        ),
        ("inelastic scattering", "background_fraction" in drawn),
        ("drift", "drift_angstrom" in drawn),
    )
    left_out = [effect for effect, simulated in effects if not simulated]
    count = specimen.simplest_zone_axes
    axes = f"one of the {count} simplest of each" if count else zones(specimen.zone_axes)
    tilts = [measured(name, limits) for name, limits in describe_varied(experiment).items() if "tilt" in name]
    listed = experiment.varied_quantities().get("thickness_angstrom") is None and len(specimen.thickness_angstrom) > 1
    thicknesses = (
        ", ".join(f"{t:g}" for t in specimen.thickness_angstrom) + " Å" if listed else describe_thickness(experiment)
    )
    seen = "films of one to three layers" if has_films_alone(experiment) else f"thicknesses of {thicknesses}"
    yield "## Limits"
    yield ""
    yield "- The network was trained on simulations only. It has not been tried on measured data."
    if left_out:
        yield f"- The training data leave out {', '.join(left_out)}."
    if tilts:
        yield f"- Crystals were near a zone axis, {axes}: {', '.join(tilts)}."
    else:
        yield f"- Specimen and beam were not tilted: crystals were on a zone axis, {axes}."
    if list(_shares(experiment)) == ["crystal"]:
        yield "- Training saw perfect, periodic crystals: no defects, surfaces, interfaces or amorphous specimens."
    yield (
        f"- {_last_training(experiment)} saw {seen}. Nothing is known of specimens that are thicker or much thinner "
        "than these and those of the scores. Data files do not state the thickness."
    )


def undrawn(experiment: Experiment) -> str:
    """Returns what scores on samples as they are stored leave out, if training draws it: the end of a phrase."""
    inputs = experiment.training.inputs
    drawn = (("noise", inputs.dose_electrons_per_pattern), ("imperfections", inputs.imperfections))
    names = " and ".join(name for name, settings in drawn if settings)
    return f", without the {names} that training draws" if names else ""


def unseen(experiment: Experiment, strata: Strata) -> Iterator[str]:
    """Kinds of specimens, and elements of held-out samples, of which there was no training sample, as limits."""
    seen = [kind for kind, counts in strata.get("kinds", {}).items() if counts["train"]] or ["crystal"]
    missing = [kind.replace("_", " ") for kind in KINDS if kind not in seen]
    if list(_shares(experiment)) != ["crystal"]:
        yield f"- {_last_training(experiment)} had no sample of these kinds of specimens: {', '.join(missing)}."
    if missing := strata["elements_not_in_train"]:
        yield f"- Elements that are held out and not in the training samples: {', '.join(map(plain, missing))}."


def data(experiment: Experiment, strata: Strata) -> Iterator[str]:
    """The dataset."""
    separation = {
        "formula": "No formula is in two splits.",
        "prototype": "No formula and no prototype (kind of formula and space group) is in two splits.",
    }
    splits = list(strata["samples"])
    elements = [element for element, counts in strata["elements"].items() if counts["train"]]
    numbers = {name: strata[name] for name in ("samples", "materials", "formulas")}
    rows = [(name, *(str(counts[split]) for split in splits)) for name, counts in numbers.items()]
    yield from section("Data", table(("", *map(plain, splits)), rows))
    yield ""
    yield f"{separation[experiment.split.by]} Crystals: {', '.join(map(plain, strata['sources']))}."
    yield f"Crystal systems of the training samples: {_counts(strata['crystal_systems'])}."
    if "kinds" in strata:
        yield f"Kinds of the training samples: {_counts(strata['kinds'])}."
    yield f"{len(elements)} elements in training: {', '.join(map(plain, elements))}."
    yield (
        f"Simulated by multislice, {experiment.simulation.form_factors} form factors, {slices(experiment.simulation)}; "
        f"hash of the samples {experiment.samples_hash()}, seed {experiment.seed}."
    )


def slices(simulation: Simulation) -> str:
    """Returns how thick slices are, in words."""
    thickness = simulation.slice_thickness_angstrom
    if thickness == "auto":
        return f"slices for errors of {plain(f'{simulation.accuracy:.3g}')} of the patterns"
    return f"slices of {thickness:g} Å"


def training(
    experiment: Experiment,
    run: RunFacts,
    training_s: float,
    before: Sequence[str],
    weights: Sequence[tuple[str, str]],
    chosen: str = "",
) -> Iterator[str]:
    """The run, the trainings before it, newest first, its weights, and which these are, if not the last."""
    network = NETWORKS[experiment.network.kind]
    machine = f" of {plain(run['machine'])}" if run.get("machine") else ""
    rows = [
        ("network", f"{network}, {run['parameters']:,} parameters, {experiment.training.inputs.channel_summary()}"),
        ("trained", f"{run['epochs']} epochs, {run['steps']:,} steps, {run['training_samples']:,} samples{chosen}"),
        ("started from", plain(", from ".join(before))),
        ("time in steps", duration(training_s)),
        ("on", f"{plural(run['ranks'], 'rank')}, each on {plain(run['device'])}{machine}"),
        ("versions", ", ".join(f"{plain(name)} {plain(number)}" for name, number in run["versions"].items())),
        *weights,
    ]
    return section("Training", table(("", ""), rows))


def weights_rows(weights: WeightsFile, rounding: str, command: str) -> tuple[tuple[str, str], ...]:
    """Returns rows about the weights file, what rounding changes, and the command that writes its digest."""
    return (
        ("weights", f"{weights['bytes'] / 1e6:.2f} MB, {weights['dtype']}: compared with float32, {rounding}"),
        ("SHA-256", f"`{weights['sha256']}`"),
        ("digest", f"`{weights['digest']}`, which `{command}` writes into its results"),
    )


def _last_training(experiment: Experiment) -> str:
    """What the limits call the training of which the samples are known."""
    return "The last training" if experiment.training.start_from else "Training"


def _shares(experiment: Experiment) -> Mapping[str, float]:
    """The shares of the kinds of specimens."""
    return {kind: share for kind, share in (experiment.specimen.kinds or {"crystal": 1.0}).items() if share}


def _kinds(experiment: Experiment) -> str:
    """The kinds of specimens that were trained for, with their shares."""
    shares = _shares(experiment)
    parts = (f"{kind.replace('_', ' ')} {share / sum(shares.values()):.0%}" for kind, share in shares.items())
    return ", ".join(parts) if len(shares) > 1 else "crystals, perfect and periodic"


def _vibrates(experiment: Experiment) -> bool:
    """Whether atoms were displaced by a temperature."""
    phonons, varied = experiment.specimen.frozen_phonons, experiment.varied_quantities()
    still = phonons is None or not (phonons.rms_angstrom or phonons.b_factor_angstrom2)
    return not still or "rms_displacement_angstrom" in varied


def _counts(by_value: Mapping[str, Mapping[str, int]]) -> str:
    """Training samples by value."""
    return ", ".join(f"{plain(value)} {counts['train']}" for value, counts in by_value.items() if counts["train"])
