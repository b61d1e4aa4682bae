"""Exports: stacks and densities in the form that other programs start from."""
