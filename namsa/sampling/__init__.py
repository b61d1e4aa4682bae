"""Pixels, slices and thermal configurations: chosen here for simulations and datasets alike."""
