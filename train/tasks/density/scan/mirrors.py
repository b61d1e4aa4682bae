"""Images and a network's inputs under the symmetries of a window (`train.experiment.symmetries`).

A symmetry of scan and detector alike mirrors the image of each channel along the scan and exchanges
channels: the mean over some of the detector's pixels becomes that over their mirror images. The
channels of a mirrored window are therefore those of the window in another order, and are computed
once for all symmetries.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array

from ....experiment.channels import Channels, channel_count


def mirrored_images(images: Array, symmetry: int) -> Array:
    """Returns images `(..., y, x)` under a symmetry: mirrored in y, in x, then y and x
    exchanged.
    """
    if symmetry & 1:
        images = images[..., ::-1, :]
    if symmetry & 2:
        images = images[..., ::-1]
    return images.swapaxes(-1, -2) if symmetry & 4 else images


def restored(images: Array, symmetry: int) -> Array:
    """Returns the images `(..., y, x)` of a mirrored window in the original orientation."""
    if symmetry & 4:
        images = images.swapaxes(-1, -2)
    if symmetry & 1:
        images = images[..., ::-1, :]
    return images[..., ::-1] if symmetry & 2 else images


class ChannelMirror(NamedTuple):
    """Exchange of channels by a symmetry: channel i of the mirrored window is `signs[i]` times
    channel `order[i]`.
    """

    symmetry: int  # number of the symmetry
    order: npt.NDArray[np.intp]  # `(c,)`
    signs: npt.NDArray[np.float32]  # `(c,)`, 1 or −1, float32

    @classmethod
    def of(
        cls, symmetry: int, channels: Channels | None, detector_shape: tuple[int, int]
    ) -> "ChannelMirror":
        """Returns the exchange of a network's channels, or without them of the detector's pixels
        (y, x).
        """
        pixels = detector_shape[0] * detector_shape[1]
        if channels is None or channels.averages is None:
            order = mirrored_images(np.arange(pixels).reshape(detector_shape), symmetry).ravel()
        else:
            weights = channels.averages.T
            turned = restored(weights.reshape(-1, *detector_shape), symmetry).reshape(weights.shape)
            # channels share no pixel: only the mirror image overlaps
            order = np.argmax(turned @ weights.T, axis=1)
        signs = np.ones(channel_count(channels, pixels), np.float32)
        rest = np.arange(len(order), len(signs))
        if channels and channels.deflection:
            exchange = [1, 0] if symmetry & 4 else [0, 1]
            rest[:2] = rest[:2][exchange]
            signs[len(order) : len(order) + 2] = np.where([symmetry & 1, symmetry & 2], -1, 1)[
                exchange
            ]
        return cls(symmetry, np.concatenate([order, rest]), signs)

    def inputs(self, inputs: Array, channel_axis: int) -> Array:
        """Returns a network's inputs for the mirrored window from those of the window, of y and x
        as the last axes.
        """
        if not self.symmetry:
            return inputs
        turned = np.moveaxis(
            mirrored_images(np.moveaxis(inputs, channel_axis, 0), self.symmetry), 0, channel_axis
        )
        signs = np.moveaxis(self.signs.reshape(-1, *[1] * (inputs.ndim - 1)), 0, channel_axis)
        mirrored: Array = np.take(turned, self.order, axis=channel_axis) * signs
        return mirrored
