"""Alternatives to an average of gradients in every step, a folder each."""
