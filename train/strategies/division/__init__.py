"""Divisions of samples over ranks; see `train.input.division`."""

from ...experiment import division  # noqa: F401 - its class comes before those of the folders
