"""Samples from the files of the programs of the paper's authors."""
