"""Crystals from files, libraries and generators, and the supercells made from them."""
