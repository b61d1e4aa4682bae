"""Section data.source of kind stemdl."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ....experiment.data import SourceSection

if TYPE_CHECKING:
    from ....experiment.experiment import Experiment


class Stemdl(SourceSection):
    """Samples from files of the programs of the paper's authors, which are taken into
    data.directory once.
    """

    kind: Literal["stemdl"] = "stemdl"
    folder: Path = Field(
        description="a folder of batch_<mode>_<rank>.db (LMDB) or .h5 (HDF5), or of folders of "
        "them; the mode is the split: train, dev or eval, test"
    )

    def decides(self) -> dict[str, object]:
        return {"kind": self.kind}

    def check(self, experiment: "Experiment") -> None:
        training = experiment.training
        inputs = experiment.training.inputs
        if (
            training.task == "density"
            and (kind := experiment.target.kind) != "standardised_potential"
        ):
            raise ValueError(
                "data.source of kind stemdl holds standardised potentials, and target.kind is "
                f"{kind}: set it to standardised_potential"
            )
        labels = ("space_group", "material")
        if training.task not in ("density", "classify") or (
            training.task == "classify" and training.classify.label not in labels
        ):
            raise ValueError(
                f"data.source of kind stemdl is for training.task density, or classify with label "
                f"{' or '.join(labels)}: set one of them"
            )
        if inputs.layout not in ("detector", "pattern"):
            raise ValueError(
                f"training.inputs.layout {inputs.layout} takes images of a scan, and the files of "
                "data.source do not say where the probes were: set it to detector or pattern"
            )
        for name in ("augment", "imperfections", "dose_electrons_per_pattern"):
            if getattr(inputs, name):
                raise ValueError(
                    f"training.inputs.{name} needs patterns in parts of the beam and the "
                    "directions of the scan, which the files of data.source do not say: unset it"
                )
