"""Crystals from files, libraries and generators, and the supercells that are cut from them."""
