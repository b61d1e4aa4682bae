"""Frames corrected by a detector's dark and gain images, as they are read."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.io.recording import PatternView


class ReferenceImages(NamedTuple):
    """Images of a detector, `(dy, dx)`; `None` for one that there is not."""

    dark: Floats | None
    gain: Floats | None


@dataclass(frozen=True)
class ReferencedFrames(PatternView):
    """Frames `(n, dy, dx)` less a dark image, times a gain."""

    references: ReferenceImages

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(np.float32)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns consecutive frames, or a part of each."""
        frames = self.stored[index].astype(np.float32)
        pixels = index[1:]
        if self.references.dark is not None:
            frames -= self.references.dark[pixels]
        if self.references.gain is not None:
            frames *= self.references.gain[pixels]
        return frames
