"""The predictions of a network for windows as it was trained with, for its calibration and card."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array

from ....apply.known_windows import KnownWindow
from ....apply.models import Model
from ....apply.weights import load_network
from ..scan.ensemble import Predict, Prediction, Views, choose_views, ensemble_predictor
from .familiarity import PatternStatistics, window_features

WINDOWS = 8  # that are predicted together, which takes less time than one by one


class TrainedEnsemble(NamedTuple):
    """The predictions of a network for windows as it was trained with."""

    predict: Predict  # predicts densities from windows
    views: Views  # the views of a window
    predicts_its_error: bool  # whether predictions have variances of their own

    @property
    def method(self) -> str:
        """Description of how the predictions are made."""
        passes = f", {self.views.passes} passes with dropout each" if self.views.passes else ""
        predicted = " with predicted errors" if self.predicts_its_error else ""
        return f"{len(self.views.symmetries)} symmetries{passes}{predicted}"


def trained_ensemble(
    model: Model, passes: int | None = None, with_maps: bool = False
) -> TrainedEnsemble:
    """Loads a network for windows as it was trained with, in the views that `reconstruct` uses."""
    views = choose_views(
        model, model.conditions.scan_shape, model.conditions.scan_step_angstrom, passes
    )
    *_, height, width = model.network.input_shape
    predict = ensemble_predictor(load_network(model, (height, width)), model, views, with_maps)
    return TrainedEnsemble(predict, views, model.predicts_its_error)


def predicted(
    ensemble: TrainedEnsemble, windows: Iterable[KnownWindow]
) -> Iterator[tuple[KnownWindow, Prediction]]:
    """Yields windows and what is predicted of each, as `Prediction.of_each` gives it."""
    remaining = iter(windows)
    while group := list(islice(remaining, WINDOWS)):
        predictions = ensemble.predict(np.concatenate([window.patterns for window in group]))
        yield from zip(group, predictions.of_each(), strict=True)


def describe_windows(
    ensemble: TrainedEnsemble,  # the predictions, with maps
    windows: Iterable[KnownWindow],
    statistics: PatternStatistics,  # of the windows' shape
    on_sample: Callable[[], None],  # called after the last window of each sample
) -> list[Array]:
    """Returns the features of each window, `(k,)`, by which familiarity is measured."""
    features: list[Array] = []
    for window, prediction in predicted(ensemble, windows):
        features.extend(window_features(statistics, window.patterns, prediction.maps))
        if window.is_last:
            on_sample()
    return features


def mean_density(prediction: Prediction) -> Array:
    """Returns the density of a window in the mean over its views, `(h, w)`, e/Å²."""
    density: Array = prediction.density.mean(axis=0)
    return density
