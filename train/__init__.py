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
    from train.reconstruction.classify import ClassifiedScan as ClassifiedScan
    from train.reconstruction.classify import classify as classify
    from train.reconstruction.embed import EmbeddedScan as EmbeddedScan
    from train.reconstruction.embed import embed as embed
    from train.reconstruction.estimate import estimate as estimate
    from train.reconstruction.estimated import EstimatedScan as EstimatedScan
    from train.reconstruction.live import LiveUpdate as LiveUpdate
    from train.reconstruction.live import next_row as next_row
    from train.reconstruction.live import reconstruct_live as reconstruct_live
    from train.reconstruction.models import Model as Model
    from train.reconstruction.models import load_model as load_model
    from train.reconstruction.reconstruct import ReconstructionOptions as ReconstructionOptions
    from train.reconstruction.reconstruct import reconstruct as reconstruct
    from train.reconstruction.result import Reconstruction as Reconstruction
    from train.reconstruction.segment import SegmentedScan as SegmentedScan
    from train.reconstruction.segment import segment as segment
    from train.reconstruction.trust import KnownSpecimen as KnownSpecimen

_MODULES = {
    "CalibrationOverrides": "namsa.io.calibration",
    "ClassifiedScan": "train.reconstruction.classify",
    "EmbeddedScan": "train.reconstruction.embed",
    "EstimatedScan": "train.reconstruction.estimated",
    "KnownSpecimen": "train.reconstruction.trust",
    "Model": "train.reconstruction.models",
    "Reconstruction": "train.reconstruction.result",
    "ReconstructionOptions": "train.reconstruction.reconstruct",
    "SegmentedScan": "train.reconstruction.segment",
    "LiveUpdate": "train.reconstruction.live",
    "classify": "train.reconstruction.classify",
    "embed": "train.reconstruction.embed",
    "estimate": "train.reconstruction.estimate",
    "load_model": "train.reconstruction.models",
    "next_row": "train.reconstruction.live",
    "reconstruct": "train.reconstruction.reconstruct",
    "reconstruct_live": "train.reconstruction.live",
    "segment": "train.reconstruction.segment",
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
    from train.main import train
    from train.tasks.reporting import read_results

    run_dir = Path(run_dir)
    train(run_dir / "config.yaml", run_dir=run_dir, evaluate_only=True)
    return read_results(run_dir)


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the module's names with the public ones that are not imported yet."""
    return sorted({*globals(), *__all__})
