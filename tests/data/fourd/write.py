"""Writes small 4D-STEM files with py4DSTEM and HyperSpy themselves; `write_old.py` has older
versions.

Both are GPL and are no part of the project; from this folder:

    ../../../scripts/uv run --no-project --isolated --python 3.11 --with py4dstem==0.14.18 --with hyperspy==2.5.0 \
        --with rosettasciio==0.15.0 --with "numpy<2" python write.py
"""  # noqa: E501

import hyperspy.api as hs
import numpy as np
import py4DSTEM

SHAPE = (4, 5, 6, 8)
counts = np.arange(np.prod(SHAPE), dtype=np.uint16).reshape(SHAPE)

cube = py4DSTEM.DataCube(data=counts)
py4DSTEM.save("py4dstem-pixels.h5", cube, mode="o")
cube.calibration.set_R_pixel_size(0.5)
cube.calibration.set_R_pixel_units("A")
cube.calibration.set_Q_pixel_size(0.2)
cube.calibration.set_Q_pixel_units("A^-1")
cube.calibration.set_origin((2.0, 4.5))
cube.calibration.set_QR_rotation_degrees(90.0)
py4DSTEM.save("py4dstem.h5", cube, mode="o")

signal = hs.signals.Signal2D(counts)
axes = (
    ("y", "nm", 0.05, 0.0),
    ("x", "nm", 0.05, 0.0),
    ("ky", "1/nm", 2.0, -4.0),
    ("kx", "1/nm", 2.0, -9.0),
)
for axis, (name, units, scale, offset) in zip(signal.axes_manager._axes, axes, strict=True):
    axis.name = name
    axis.units = units
    axis.scale = scale
    axis.offset = offset
signal.metadata.set_item("Acquisition_instrument.TEM.beam_energy", 200.0)
signal.metadata.set_item("Acquisition_instrument.TEM.convergence_angle", 20.0)
signal.save("hyperspy.hspy", overwrite=True)
signal.save("hyperspy.emd", overwrite=True)
