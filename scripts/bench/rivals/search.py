"""The judge of reconstruct_vs_rivals.py and the search for settings, which knows the development split only."""

import argparse
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

import numpy as np

from namsa.pixels import PixelGrid
from rivals.methods import SEARCH, Settings, images
from rivals.stacks import Image, Stack
from train.measure.atomic_columns import column_metrics
from train.measure.metrics import image_metrics

Numbers = dict[str, float | None]

QUALITY = ("ssim", "own_ssim", "pearson")
# Where nobody tells the specimen: one thickness for all.
UNTOLD: dict[str, tuple[Any, ...]] = {"thickness_angstrom": (50.0, 25.0, 100.0)}
FOCUS_BY = "py4DSTEM, multislice"
BORDER = 5  # pixels of the target on every side


@dataclass(frozen=True)
class Choice:
    """What the development split says is best: settings, which of the images along the way, and how to map it."""

    settings: Settings
    leg: int
    windowed: bool
    line: tuple[float, float]
    ssim: float


def search(
    method: str, dev: list[Stack], wanted: str, options: argparse.Namespace, begin: Settings | None = None
) -> Choice:
    """Setting by setting, from `begin` or the first values of all, each value kept that is better than what was."""
    axes = axes_of(method, dev[0])
    settings = begin or first(axes, options)
    best = chosen(method, dev, settings, wanted, options)
    for name, values in axes.items():
        if options.axes is not None and name not in options.axes:
            continue
        others = [best.settings | {name: value} for value in values if value != best.settings[name]]
        if not others:
            continue
        with ThreadPoolExecutor(len(others)) as pool:
            tried = list(pool.map(lambda other: chosen(method, dev, other, wanted, options), others))
        best = max([best, *tried], key=lambda choice: choice.ssim)
    return best


def axes_of(method: str, stack: Stack) -> dict[str, tuple[Any, ...]]:
    """The values of each setting of a method."""
    axes = dict(SEARCH.get(method, {}))
    return axes | UNTOLD if axes and "thickness_angstrom" not in stack.provenance else axes


def first(axes: dict[str, tuple[Any, ...]], options: argparse.Namespace) -> Settings:
    """Where a search begins."""
    return {name: options.begin.get(name, values[0]) for name, values in axes.items()}


def focused(stack: Stack, focuses: Sequence[float], options: argparse.Namespace) -> tuple[Stack, float]:
    """The stack with that `c10` of `focuses` under which its patterns fit best, and the CPU seconds to find it.

    Best: by the loss of `FOCUS_BY` after the first of the iterations, with the first of its settings. (`--begin` is for
    the method that is judged, whose rates are others.)
    """
    short = argparse.Namespace(**vars(options) | {"iterations": options.iterations[:1]})
    settings = first(axes_of(FOCUS_BY, stack), argparse.Namespace(begin={}))
    found = {c10: images(FOCUS_BY, replace(stack, c10=c10), settings, short) for c10 in focuses}
    loss = {c10: np.nan_to_num(answer["losses"][-1], nan=np.inf) for c10, answer in found.items()}
    seconds = sum(answer["cpu_seconds"][-1] for answer in found.values())
    return replace(stack, c10=min(focuses, key=lambda c10: loss[c10])), seconds


def chosen(method: str, dev: list[Stack], settings: Settings, wanted: str, options: argparse.Namespace) -> Choice:
    """The best of the images along the way, with and without the window; its line fits those of `dev` that it got.

    Got: with at least half of the best one's SSIM under its own line. One that failed would spoil the others' scale.
    """
    found = [answer["images"] for answer in everywhere(method, dev, settings, options)]
    choices = []
    for leg in range(len(found[0])):
        for windowed in (False, True):
            pictures = [sample[leg][int(windowed)] for sample in found]
            if not all(np.isfinite(picture).all() for picture in pictures):  # a step that is too long diverges
                continue
            scores = [
                judge(image, s, wanted, (1, 0))["own_ssim"] or 0.0 for image, s in zip(pictures, dev, strict=True)
            ]
            seen = [n for n, score in enumerate(scores) if score >= max(scores) / 2]  # a failure says nothing of scale
            line = fitted(np.array([pictures[n] for n in seen]), np.array([dev[n].truth[wanted] for n in seen]))
            choices.append(Choice(settings, leg, windowed, line, mean(scores)))
    return max(choices, key=lambda c: c.ssim, default=Choice(settings, 0, False, (1, 0), -1.0))


def at(choice: Choice, answer: dict[str, Any]) -> Image:
    """The image after the choice's iterations, or the last one before it diverged."""
    legs = [leg[int(choice.windowed)] for leg in answer["images"][: choice.leg + 1]]
    return next((image for image in reversed(legs) if np.isfinite(image).all()), np.zeros_like(legs[0]))


def everywhere(
    method: str, stacks: list[Stack], settings: Settings, options: argparse.Namespace
) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(len(stacks)) as pool:
        return list(pool.map(lambda stack: images(method, stack, settings, options), stacks))


def fitted(image: Image, truth: Image) -> tuple[float, float]:
    """Scale and offset by least squares, of the interiors."""
    x, t = interior(image), interior(truth)
    scale = float(((x - x.mean()) * (t - t.mean())).sum() / max(((x - x.mean()) ** 2).sum(), 1e-30))
    return scale, float(t.mean() - scale * x.mean())


def judge(image: Image, stack: Stack, wanted: str, line: tuple[float, float]) -> Numbers:
    truth = interior(stack.truth[wanted])
    own = fitted(image, stack.truth[wanted])
    numbers = image_metrics(line[0] * interior(image) + line[1], truth, huber_delta=1.0)
    frame = PixelGrid(stack.frame.step, np.add(stack.frame.origin, np.multiply(BORDER, stack.frame.step)).tolist())
    return {
        "ssim": numbers["ssim"],
        "own_ssim": image_metrics(own[0] * interior(image) + own[1], truth, huber_delta=1.0)["ssim"],
        **{name: numbers[name] for name in ("pearson", "psnr", "mae", "r_factor")},
        **(column_metrics(interior(image), frame, stack.atoms) if stack.atoms else {}),
    }


def interior(image: Image) -> Image:
    return image[..., BORDER:-BORDER, BORDER:-BORDER]


def means(judged: Iterable[Numbers]) -> Numbers:
    rows = list(judged)
    defined = {name: [v for numbers in rows if (v := numbers[name]) is not None] for name in rows[0]}
    return {name: mean(values) if values else None for name, values in defined.items()}


def standard_errors(judged: Sequence[Numbers]) -> Numbers:
    """Of the means of what the tables' first columns have; samples of one material are not independent."""
    defined = {name: [v for numbers in judged if (v := numbers[name]) is not None] for name in QUALITY}
    return {name: stdev(v) / len(v) ** 0.5 if len(v) > 1 else None for name, v in defined.items()}


def falling(losses: list[float], iterations: list[int]) -> float:
    """The part of itself by which the loss still fell in the last leg."""
    return losses[iterations[-2] - 1] / losses[iterations[-1] - 1] - 1 if len(iterations) > 1 else float("nan")
