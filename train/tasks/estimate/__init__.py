"""The task estimate: thickness, defocus and tilt of a scan."""
