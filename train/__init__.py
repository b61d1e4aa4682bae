"""Training of networks on simulated 4D-STEM data, and reconstruction with trained networks.

    import train

    result = train.reconstruct("scan.h5", "200kv-20mrad")
    result.density, result.uncertainty, result.axes_angstrom
    result.save("density.h5")
    result.show("density.png")

Public names are imported when they are first used: `import train` does not import TensorFlow.
"""

import importlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from namsa.io.calibration import CalibrationOverrides as CalibrationOverrides

    from .apply.models import Model as Model
    from .apply.models import load_model as load_model
    from .apply.trust import KnownSpecimen as KnownSpecimen
    from .tasks.classify.application import ClassifiedScan as ClassifiedScan
    from .tasks.classify.application import classify as classify
    from .tasks.density.application import ReconstructionOptions as ReconstructionOptions
    from .tasks.density.application import reconstruct as reconstruct
    from .tasks.density.live import LiveUpdate as LiveUpdate
    from .tasks.density.live import next_row as next_row
    from .tasks.density.live import reconstruct_live as reconstruct_live
    from .tasks.density.result import Reconstruction as Reconstruction
    from .tasks.embed.application import EmbeddedScan as EmbeddedScan
    from .tasks.embed.application import embed as embed
    from .tasks.estimate.application import estimate as estimate
    from .tasks.estimate.result import EstimatedScan as EstimatedScan
    from .tasks.segment.application import SegmentedScan as SegmentedScan
    from .tasks.segment.application import segment as segment

_MODULES = {
    "CalibrationOverrides": "namsa.io.calibration",
    "ClassifiedScan": ".tasks.classify.application",
    "EmbeddedScan": ".tasks.embed.application",
    "EstimatedScan": ".tasks.estimate.result",
    "KnownSpecimen": ".apply.trust",
    "Model": ".apply.models",
    "Reconstruction": ".tasks.density.result",
    "ReconstructionOptions": ".tasks.density.application",
    "SegmentedScan": ".tasks.segment.application",
    "LiveUpdate": ".tasks.density.live",
    "classify": ".tasks.classify.application",
    "embed": ".tasks.embed.application",
    "estimate": ".tasks.estimate.application",
    "load_model": ".apply.models",
    "next_row": ".tasks.density.live",
    "reconstruct": ".tasks.density.application",
    "reconstruct_live": ".tasks.density.live",
    "segment": ".tasks.segment.application",
}
__all__ = list(_MODULES)
__all__ += ["__version__", "evaluate"]

__version__ = version("namsa")


def evaluate(run_dir: str | Path) -> Mapping[str, Any]:
    """Evaluates the newest checkpoint of a run on held-out materials.

    Writes `evaluation.json`, `report.html` and, of densities, `predictions.npz` in the run directory, as
    `python -m train evaluate RUN_DIR` does.

    Args:
        run_dir: Run directory, with its dataset at hand.

    Returns:
        Contents of `evaluation.json`: of densities a `train.reports.results.Evaluation`.

    Raises:
        InputError: If the run has no valid configuration.
    """
    from .main import train
    from .tasks.reporting import read_results

    run_dir = Path(run_dir)
    train(run_dir / "config.yaml", run_dir=run_dir, evaluate_only=True)
    return read_results(run_dir)


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name], __package__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the module's names with the public ones that are not imported yet."""
    return sorted({*globals(), *__all__})
