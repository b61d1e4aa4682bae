"""What sending weights in fewer bytes costs and gains: the four terms of AWP/ADT, and what was published of them.

    Zhuang, Malossi & Casas 2020, Reducing Data Motion to Accelerate the Training of Deep Neural Networks
    (arXiv:2004.02297), tables II and III: VGG of configuration A, 200 classes, batch size 64

Of n weights that travel in b bytes each:

    transfer    n · b / rate of the wire
    norm        4 n / rate at which the weights' owner reads
    pack        (4 + b) n / rate at which the owner reads and writes
    unpack      (4 + b) n / rate at which the receiver reads and writes

The rates and b are fitted to table II (a node with four GK210) except b on the second system. Of table III (a node with
four V100), only the transfer in float32 is taken, which is the rate of its wire; its other terms follow from the rates
of the memories: hosts 136 and 340 GB/s, GPUs 240 and 900 GB/s (data sheets). b is what a transfer 2.94 times as fast
leaves; the paper says "close to 3".
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .published import TOLERANCE, PublishedResult

VGG_WEIGHTS = 9_217_728 + 120_356_864  # of 8 convolutions and 3 fully connected layers, without biases
FLOAT_BYTES = 4

# ms, tables II and III: transfer in float32, transfer, norm, pack, unpack, and all kernels of the step.
X86 = (153.93, 52.27, 3.88, 19.71, 4.51, 367.08)
POWER = (39.12, 12.21, 0.93, 10.51, 1.11, 170.33)
HOST_RATIO, GPU_RATIO = 340 / 136, 900 / 240  # of the memories' rates, POWER to x86


@dataclass(frozen=True)
class TransferRates:
    """Rates of a system, bytes/s.

    Attributes:
        wire: Of the wire.
        norm: At which weights are read for their norms.
        pack: At which the owner reads weights and writes bytes, both together.
        unpack: At which the receiver reads bytes and writes weights, both together.
    """

    wire: float
    norm: float
    pack: float
    unpack: float


@dataclass(frozen=True)
class TransferTimes:
    """The four terms, s."""

    transfer_s: float
    norm_s: float
    pack_s: float
    unpack_s: float

    @property
    def total_s(self) -> float:
        """Their sum, which is the time if none of them hides behind another."""
        return self.transfer_s + self.norm_s + self.pack_s + self.unpack_s


def transfer_times(rates: TransferRates, weights: float, size: float) -> TransferTimes:
    """Returns the four terms.

    Args:
        rates: Rates of the system.
        weights: Number of weights that travel.
        size: Bytes of a weight on the wire, the mean over layers. With 4, nothing is packed, and no norm is taken.
    """
    transfer_s = weights * size / rates.wire
    if size == FLOAT_BYTES:
        return TransferTimes(transfer_s, 0.0, 0.0, 0.0)
    moved = (FLOAT_BYTES + size) * weights
    return TransferTimes(transfer_s, FLOAT_BYTES * weights / rates.norm, moved / rates.pack, moved / rates.unpack)


def break_even_bytes_per_s(rates: TransferRates, size: float) -> float:
    """Returns the rate of the wire below which `size` bytes per weight take less time than four."""
    times = transfer_times(rates, 1.0, size)
    return (FLOAT_BYTES - size) / (times.norm_s + times.pack_s + times.unpack_s)


def fitted() -> tuple[TransferRates, float]:
    """Returns the rates of the first system, and the mean bytes of a weight."""
    whole, transfer, norm, pack, unpack = (number * 1e-3 for number in X86[:5])
    size = FLOAT_BYTES * transfer / whole
    moved = (FLOAT_BYTES + size) * VGG_WEIGHTS
    rates = TransferRates(
        FLOAT_BYTES * VGG_WEIGHTS / whole, FLOAT_BYTES * VGG_WEIGHTS / norm, moved / pack, moved / unpack
    )
    return rates, size


def published_transfers() -> tuple[PublishedResult, ...]:
    """Returns every number of tables II and III about transfers beside the model's."""
    rates, size = fitted()
    power = replace(
        rates,
        wire=FLOAT_BYTES * VGG_WEIGHTS / (POWER[0] * 1e-3),
        norm=HOST_RATIO * rates.norm,
        pack=HOST_RATIO * rates.pack,
        unpack=GPU_RATIO * rates.unpack,
    )
    return (*_table("II", X86, rates, size, True), *_table("III", POWER, power, size, False))


def _table(
    table: str, published: tuple[float, ...], rates: TransferRates, size: float, terms_fitted: bool
) -> Iterator[PublishedResult]:
    whole = transfer_times(rates, VGG_WEIGHTS, FLOAT_BYTES)
    times = transfer_times(rates, VGG_WEIGHTS, size)
    rest = published[5] - sum(published[1:5])  # of the step, which is measured and not modelled
    step = rest + 1e3 * times.total_s
    numbers = (
        ("transfer in float32, ms", published[0], 1e3 * whole.transfer_s, True),
        ("transfer, ms", published[1], 1e3 * times.transfer_s, terms_fitted),
        ("norms, ms", published[2], 1e3 * times.norm_s, terms_fitted),
        ("pack, ms", published[3], 1e3 * times.pack_s, terms_fitted),
        ("unpack, ms", published[4], 1e3 * times.unpack_s, terms_fitted),
        ("share of norms in the step, %", {"II": 1.05, "III": 0.54}[table], 1e5 * times.norm_s / step, terms_fitted),
        (
            "share of pack and unpack in the step, %",
            {"II": 6.60, "III": 6.82}[table],
            1e5 * (times.pack_s + times.unpack_s) / step,
            terms_fitted,
        ),
    )
    for name, value, model, is_fitted in numbers:
        met = abs(model / value - 1) <= TOLERANCE
        source = f"Zhuang et al. 2020, table {table}"
        yield PublishedResult(name, "equal", value, model, is_fitted, met, "VGG, batch 64", source)
