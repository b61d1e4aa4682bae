"""Writes `py4dstem-0.12.h5` or `py4dstem-0.13.h5`, by the version of py4DSTEM that it is run with;
see `write.py`.

    ../../../scripts/uv run --no-project --isolated --python 3.11 --with py4dstem==0.13.17 --with "numpy<2" \
        --with "setuptools<70" python write_old.py
    ../../../scripts/uv run --no-project --isolated --python 3.11 --with py4dstem==0.12.24 --with "numpy<1.24" \
        --with "setuptools<70" python write_old.py
"""  # noqa: E501

import numpy as np
import py4DSTEM
from py4DSTEM.io import DataCube, save

SHAPE = (4, 5, 6, 8)
cube = DataCube(np.arange(np.prod(SHAPE), dtype=np.uint16).reshape(SHAPE))

if py4DSTEM.__version__.startswith("0.12"):
    from py4DSTEM.io.datastructure import Metadata

    cube.metadata = metadata = Metadata()
    metadata.set_R_pixel_size(0.5)
    metadata.set_R_pixel_size_units("A")
    metadata.set_Q_pixel_size(0.2)
    metadata.set_Q_pixel_size_units("A^-1")
    metadata.set_beam_energy(200e3)
    save("py4dstem-0.12.h5", cube, overwrite=True)
else:
    cube.calibration.set_R_pixel_size(0.5)
    cube.calibration.set_R_pixel_units("A")
    cube.calibration.set_Q_pixel_size(0.2)
    cube.calibration.set_Q_pixel_units("A^-1")
    save("py4dstem-0.13.h5", cube, mode="o")
