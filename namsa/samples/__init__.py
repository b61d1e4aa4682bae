"""Samples: patterns, density, potential and provenance, in memory and in HDF5 files."""
