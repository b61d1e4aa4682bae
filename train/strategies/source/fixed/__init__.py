"""Shares of the samples that the ranks keep for the whole training."""
