"""The identity of a trained network: digests of all that its answers follow from."""

from collections.abc import Collection

from namsa.base.identity import digest_of, digest_of_file
from namsa.base.version import __version__

from .digests import MEASURED_FILES
from .models import Model
from .weights import weights_digest


def calibration_identity(
    model: Model, ids: Collection[str], **settings: object
) -> dict[str, object]:
    """Returns what a calibration follows from, in JSON types, for `namsa.base.identity`.

    Args:
        ids: The samples that it may use.
        **settings: How it is measured.

    Raises:
        InputError: If the weights cannot be read.
    """
    return {
        "program": __version__,
        "weights": weights_digest(model),
        "samples": digest_of(sorted(ids)),
        **settings,
    }


def network_identity(model: Model) -> dict[str, object]:
    """Returns what the answers of a network follow from, in JSON types, for `namsa.base.identity`.

    Raises:
        InputError: If the weights cannot be read.
    """
    identity: dict[str, object] = {
        "weights": weights_digest(model),
        "configuration": digest_of(model.experiment.model_dump(mode="json")),
    }
    for name in MEASURED_FILES:
        path = model.folder / name
        if path.is_file():
            identity[name] = digest_of_file(path)
    return identity
