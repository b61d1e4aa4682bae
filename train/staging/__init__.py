"""Staging of datasets and checkpoints on node-local storage."""
