"""The compiled part of the fused engine, fused.c, and its structures."""

import ctypes
import importlib.util

from namsa.base.errors import WorkError

LIBRARY = "_namsa_fused"  # the name that hatch_build.py installs
LEVELS = 32  # MAX_LEVELS in fused.c


class Transform(ctypes.Structure):
    """`Transform` of fused.c."""

    _fields_ = (
        ("n", ctypes.c_int),
        ("radix", ctypes.c_int * LEVELS),
        ("block", ctypes.c_int * LEVELS),
        ("offset", ctypes.c_long * LEVELS),
        ("twiddles", ctypes.c_void_p),
    )


class FusedPlan(ctypes.Structure):
    """`Plan` of fused.c."""

    _fields_ = (
        ("y", Transform),
        ("x", Transform),
        ("number_bytes", ctypes.c_int),
        ("lanes", ctypes.c_int),
        ("padded_y", ctypes.c_int),
        ("padded_x", ctypes.c_int),
        ("groups", ctypes.c_int),
        ("slices", ctypes.c_int),
        ("zeros_x", ctypes.c_int),
        ("zeros_y", ctypes.c_void_p),
        ("group", ctypes.c_void_p),
        ("group_of", ctypes.c_void_p),
        ("row_of", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("transmissions", ctypes.c_void_p),
        ("distance", ctypes.c_void_p),
        ("fresnel", ctypes.c_void_p),
        ("lens", ctypes.c_void_p),
    )


def load() -> ctypes.CDLL | None:
    """Loads the compiled part. Returns `None` if it is not installed."""
    spec = importlib.util.find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        return None
    library = ctypes.CDLL(spec.origin)  # its calls release the interpreter's lock
    pointer = ctypes.c_void_p
    library.fused_patterns.argtypes = (
        ctypes.POINTER(FusedPlan),
        ctypes.c_int,
        pointer,
        pointer,
        pointer,
        pointer,
    )
    library.fused_patterns.restype = None
    if library.fused_plan_bytes() != ctypes.sizeof(FusedPlan):
        raise WorkError(
            f"{spec.origin} is of another namsa: install it again (in a checkout: scripts/uv sync)"
        )
    return library


compiled = load()


def available() -> bool:
    """Returns whether the compiled part is installed. It is missing if there was no C compiler at
    installation.
    """
    return compiled is not None


def vector_bytes() -> int:
    """Returns the width of the widest vectors that processor and compiled part support: 16, 32 or
    64 bytes.

    It is 0 without the compiled part.
    """
    if compiled is None:
        return 0
    return int(compiled.fused_vector_bytes())
