"""The task density: the projected electron density of a specimen, or that of each bin along the beam, from a scan."""
