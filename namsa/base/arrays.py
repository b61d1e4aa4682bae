"""Types of arrays. Docstrings say their shapes."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Tensor = Any  # of TensorFlow, JAX or Keras
Pair = tuple[float, float]  # (y, x)
Buffer = bytes | bytearray | memoryview
