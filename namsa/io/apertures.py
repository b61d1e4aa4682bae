"""Lit parts of a pattern that are whole apertures: what is dark between them is no dead region.

Diffracted disks are copies of one aperture. Parts of one disk that a dead line or bar divides are
its halves and quarters, which a shift does not bring upon each other.
"""

import numpy as np
from scipy import ndimage

from namsa.base.arrays import Booleans

SMALLEST = 20  # pixels
MOST = 64  # parts, the largest ones
SAME_SIDE = 0.15  # relative difference of the sides of copies, or one pixel
OVERLAP = 0.8  # of the common pixels of two copies over those of either
FILLED = 0.95  # of the pixels of a rectangle


def copies_and_rectangles(lit: Booleans) -> tuple[Booleans, Booleans]:
    """Returns the pixels of parts that have a copy, and of those that are filled rectangles.

    Parts at the edge of the detector are left out, which it may cut off.

    Args:
        lit: Pixels that count, `(dy, dx)`.
    """
    labels, count = ndimage.label(lit)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)
    sizes[0] = 0
    for edge in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        sizes[edge] = 0
    largest = np.argsort(-sizes, kind="stable")[:MOST]
    places = ndimage.find_objects(labels)
    shapes: dict[int, Booleans] = {}
    for label in largest.tolist():
        if sizes[label] >= SMALLEST:
            shapes[label] = labels[places[label - 1]] == label
    has_copy = np.zeros(count + 1, bool)
    is_rectangle = np.zeros(count + 1, bool)
    for label, shape in shapes.items():
        is_rectangle[label] = shape.mean() >= FILLED
        for other_label, other in shapes.items():
            if other_label != label and _are_copies(shape, other):
                has_copy[label] = True
                break
    return has_copy[labels], is_rectangle[labels]


def _are_copies(first: Booleans, second: Booleans) -> bool:
    """Returns whether a shift brings two parts upon each other, each in its own rectangle."""
    for side, other in zip(first.shape, second.shape, strict=True):
        if abs(side - other) > max(1, SAME_SIDE * max(side, other)):
            return False
    height = min(first.shape[0], second.shape[0])
    width = min(first.shape[1], second.shape[1])
    inside_first = first[:height, :width]
    inside_second = second[:height, :width]
    common = int((inside_first & inside_second).sum())
    return common >= OVERLAP * max(int(first.sum()), int(second.sum()))
