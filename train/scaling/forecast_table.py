"""A forecast in words, as `namsa-train CONFIG --dry-run` prints it."""

from collections.abc import Iterator

from namsa.base.text import duration, plural

from . import memory
from .results import Forecast, SimulationForecast

Row = tuple[str, str]  # name and value


def table_rows(forecast: Forecast) -> Iterator[Row]:
    """Yields a forecast as rows (name, value) of a table."""
    if forecast["simulation"]:
        yield "to simulate", _simulation(forecast["simulation"])
    yield from _job_rows(forecast)
    yield from _time_rows(forecast)
    if "synchronisations" in forecast:
        synchronisations = forecast["synchronisations"]
        megabytes = forecast["synchronised_bytes"] / 1e6
        yield (
            "local SGD",
            f"{plural(synchronisations, 'synchronisation')}, each of {megabytes:,.4g} MB per rank",
        )
    yield from _memory_rows(forecast)
    yield (
        "disk",
        f"{forecast['disk_bytes'] / 1e6:,.1f} MB in the run directory, most of it checkpoints",
    )


def _simulation(simulation: SimulationForecast) -> str:
    return (
        f"{plural(simulation['samples'], 'sample')} of {simulation['listed']}: "
        f"{duration(simulation['seconds'])}, {simulation['disk_bytes'] / 1e9:.3g} GB on disk; "
        f"estimated from {plural(simulation['estimated_from'], 'material')}"
    )


def _job_rows(forecast: Forecast) -> Iterator[Row]:
    """Yields the sizes of the job."""
    yield (
        "samples",
        f"{forecast['train_samples']} for training, {forecast['held_out_samples']} held out",
    )
    yield (
        "network",
        f"{forecast['parameters']:,} parameters, {forecast['step_flop']:.3g} FLOP per step of one "
        "rank",
    )
    yield (
        "steps",
        f"{forecast['steps']}: {forecast['epochs']} epochs of {forecast['steps_per_epoch']}, on "
        f"{plural(forecast['ranks'], 'rank')}",
    )


def _time_rows(forecast: Forecast) -> Iterator[Row]:
    """Yields the times of a step and of the job."""
    gflop_per_s = forecast["step_flop"] / forecast["step_s"] / 1e9
    image = "×".join(map(str, forecast["measured_image"]))
    yield (
        "time per step",
        f"{1e3 * forecast['step_s']:.3g} ms, {gflop_per_s:.3g} GFLOP/s, measured on this machine "
        f"with images of {image}",
    )
    yield (
        "training",
        f"{duration(forecast['seconds'])}, without waiting for data, other ranks and evaluation",
    )


def _memory_rows(forecast: Forecast) -> Iterator[Row]:
    """Yields the memory of a rank on the host and on a GPU."""
    kept_mib = forecast["kept_bytes"] / 2**20
    kept = f" and {kept_mib:,.1f} MiB windows that are kept between epochs" if kept_mib else ""
    yield "memory per rank", f"{forecast['memory_mib'] + kept_mib:,.0f} MiB on the host{kept}"
    if forecast["memory"] != forecast["gpu_memory"]:
        yield "of that a step", memory.in_words(forecast["memory"])
    batches = []
    for gpu, batch_size in forecast["largest_batches"].items():
        batches.append(f"{gpu} {batch_size or 'none'}")
    yield (
        "a step on a GPU",
        f"{memory.in_words(forecast['gpu_memory'])}; samples per batch: {', '.join(batches)}",
    )
    if "store_bytes" in forecast:
        yield "samples in memory", f"{forecast['store_bytes'] / 1e6:,.4g} MB per rank, beside that"
