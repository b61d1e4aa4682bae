"""A convolutional variational autoencoder (Bhowmik et al. 2018), as Yoginath et al. train it on
28×28 images.

The encoder gives each image a normal distribution over a few latent numbers, from which the decoder
makes the image again. All convolutions have stride 1, so that the decoder's are those of the
encoder in reverse order.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fcdensenet.blocks import Tensor
from fcdensenet.config import Kernel

from .config import Image, Maps, NetworkSection
from .layers import NetworkLayers

if TYPE_CHECKING:
    import keras
    from keras import KerasTensor

SMALLEST_SQUARE = 1e-12  # mean square error below which the root's gradient no longer grows


class CVAEConfig(NetworkSection):
    """An autoencoder for images, by default that of Yoginath et al. They do not name the decoder's
    last function.
    """

    kind: Literal["cvae"] = "cvae"
    input_shape: Image = Field(description="(channels, y, x) of an image")
    filters: tuple[Maps, ...] = Field(
        (128, 128, 128),
        min_length=1,
        max_length=31,
        description="feature maps of the encoder's convolutions",
    )
    kernel: Kernel = Field(3, description="kernel size of the convolutions")
    hidden: Maps = Field(
        128, description="units of the dense layers between convolutions and latent numbers"
    )
    latent: Maps = Field(3, description="number of latent numbers")
    output: Literal["linear", "sigmoid"] = Field(
        "linear", description="of the decoder; 'sigmoid' is for images between 0 and 1"
    )


def network(
    op: NetworkLayers[Tensor], config: CVAEConfig
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Returns the network's input; the decoded image, and mean and logarithm of the variance of the
    latent numbers.
    """
    x = image = op.input("image")
    for index, filters in enumerate(config.filters, start=1):
        x = op.relu(
            op.conv(x, filters, config.kernel, f"encoder_conv{index}"), f"encoder_relu{index}"
        )
    encoded = x
    x = op.relu(
        op.dense(op.flatten(encoded, "flatten"), config.hidden, "encoder_dense"), "encoder_relu"
    )
    mean = op.output(op.dense(x, config.latent, "latent_mean"), "mean")
    log_variance = op.output(op.dense(x, config.latent, "latent_log_variance"), "log_variance")

    x = op.sample(mean, log_variance, "sample")
    x = op.relu(op.dense(x, config.hidden, "decoder_dense1"), "decoder_relu")
    x = op.dense(x, _values(config), "decoder_dense2")
    x = op.relu(op.unflatten(x, encoded, "unflatten"), "decoder_relu0")
    for index, filters in enumerate(config.filters[-2::-1], start=1):
        x = op.relu(
            op.conv(x, filters, config.kernel, f"decoder_conv{index}"), f"decoder_relu{index}"
        )
    x = op.conv(x, config.input_shape[0], config.kernel, f"decoder_conv{len(config.filters)}")
    if config.output == "sigmoid":
        x = op.sigmoid(x, "decoder_sigmoid")
    return image, (op.output(x, "decoded"), mean, log_variance)


def _values(config: CVAEConfig) -> int:
    """The number of values of the encoder's last maps."""
    _, height, width = config.input_shape
    return config.filters[-1] * height * width


def decoder(model: "keras.Model") -> "keras.Model":
    """Returns the decoder of a built network: from latent numbers, `(n, latent)`, to images."""
    import keras

    return keras.Model(model.get_layer("sample").output, model.output[0], name="decoder")


def losses(
    images: "KerasTensor", decoded: "KerasTensor", mean: "KerasTensor", log_variance: "KerasTensor"
) -> "tuple[KerasTensor, KerasTensor]":
    """Returns the two terms whose sum is minimised, each as the mean over a batch.

    Args:
        mean: Of each latent number, `(n, latent)`.
        log_variance: Natural logarithm of the variance of each, `(n, latent)`.

    Returns:
        The root of an image's mean square error, and the divergence of Kullback and
        Leibler of the latent distributions from the standard normal one, in nat.
    """
    from keras import ops

    squares = ops.square(ops.cast(images, "float32") - decoded)
    root = ops.sqrt(ops.mean(squares, axis=tuple(range(1, len(squares.shape)))) + SMALLEST_SQUARE)
    divergence = ops.sum(ops.exp(log_variance) + ops.square(mean) - 1 - log_variance, axis=-1) / 2
    return ops.mean(root), ops.mean(divergence)
