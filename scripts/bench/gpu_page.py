"""Writes docs/benchmarks/gpu.md, and gpu.json beside it, from the results of
scripts/gpu_evidence.sh.

    python scripts/bench/gpu_page.py [RESULTS.json ...]

Of several runs, on cards of the same name, each part is that of the last which has it. A part that
failed may have a "note", written by hand. Without RESULTS.json the page is made of the gpu.json
that is there: a test compares them.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks/gpu.md"
Result = Any  # what a part has printed; see the part's script


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="*", type=Path, help="gpu.json of a run on a card")
    options = parser.parse_args()
    kept = PAGE.with_suffix(".json")
    runs = []
    for path in options.results or [kept]:
        runs.append(json.loads(path.read_text(encoding="utf-8")))
    results = {part: result for run in runs for part, result in run.items()}
    if results.get("rehearsal"):
        parser.error("these results are of a rehearsal")
    machines = []
    cards = set()
    for run in runs:
        if "machine" in run:
            machines.append(run["machine"]["result"]["gpu"][1].split(",")[0])
        engines = run.get("engines", {}).get("result")
        if engines:
            cards.add(engines["device"])
    cards |= set(machines)
    if len(cards) > 1:
        parser.error(f"these results are of different cards: {', '.join(sorted(cards))}")
    kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")
    return 0


def page(results: dict[str, Any]) -> str:
    """Returns the page of some results."""
    results_by_part = {name: part["result"] for name, part in results.items() if part["result"]}
    machine = results_by_part["machine"]
    name, driver, memory, clock, power = machine["gpu"][1].split(", ")
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items())
    parts = []
    failed = ""
    for part, result in results.items():
        if part != "machine":
            parts.append(f"| {part} | {result['ended']} | {result['seconds']:.0f} s |")
        if result["ended"] != "well":
            failed += f"- Part {part}: it has ended {result['ended']}.{result.get('note', '')}\n"
    absent = [part for part in SECTIONS if part not in results]
    made = []
    for part, section in SECTIONS.items():
        try:
            made += [section(results_by_part[part])] if part in results_by_part else []
        except (
            KeyError,
            TypeError,
        ):  # what a part has printed that failed; it is listed at the end
            if results[part]["ended"] == "well":
                raise
    blocks = [
        "# Benchmarks: one GPU",
        "`scripts/bench/gpu_page.py` writes this page from [gpu.json](gpu.json), which one "
        "command measured, maybe in several runs:",
        "    scripts/gpu_evidence.sh",
        f"Machine: one {name}, {memory}, driver {driver}, at most {clock} and {power}; "
        f"{machine['cores']} cores; Python {machine['python']}; {versions}. No TensorFlow, no "
        "Horovod.",
        table(("what", "wanted", "reached"), wanted(results_by_part)),
        "\n".join(["| part | ended | time |", "|---|---|---:|", *parts]),
        *made,
        "## Not shown",
        "- The kernels on V100 and A100, which they are compiled for, and the computer Summit.\n"
        "- TensorFlow on a GPU, Horovod with NCCL, and more than one GPU.\n"
        + failed
        + (f"- {', '.join(absent)}: not in this run.\n" if absent else ""),
    ]
    return "\n\n".join(map(wrapped, blocks)).rstrip("\n") + "\n"


def wrapped(block: str) -> str:
    """Returns the lines of a block, but for tables and code, of at most 120 characters."""
    lines = []
    for line in block.split("\n"):
        is_as_written = line.startswith(("|", "    "))
        lines.append(line if is_as_written else textwrap.fill(line, 120))
    return "\n".join(lines)


def wanted(results_by_part: dict[str, Result]) -> Iterable[tuple[str, str, str]]:
    """Yields what was wanted of the card, and what it did."""
    if engines := results_by_part.get("engines"):
        best = engines["seconds"][engines["best"]]
        yield (
            f"{engines['probes']:,} patterns of {engines['grid']}², {engines['slices']} slices",
            "0.5 s",
            f"{best:.3f} s",
        )
        if "abtem_failed" not in engines and engines["rival"].startswith("abTEM"):
            yield "the same against abTEM", "10 times", f"{engines['ratio']:.1f} times"
        yield "the same against the memory's rate", "0.7", f"{engines['roofline_fraction']:.2f}"
    if networks := results_by_part.get("networks"):
        differences = []
        for row in networks["networks"].values():
            differences.append(row.get("difference", float("nan")))
        worst = max(differences, default=float("nan"))
        yield "networks on card and processor, largest difference", "1e-5", f"{worst:.1e}"
    for case in steps(results_by_part.get("step")):
        yield (
            f"step of paper.yaml, {case['compute']}, share of the peak",
            "0.45",
            f"{case['share_of_peak']:.2f}",
        )


def steps(result: Result) -> list[dict[str, Any]]:
    """Returns the cases of part step that were measured."""
    return [case for case in result or [] if "step_s" in case]


def of_tests(result: Result) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in result.items())
    return f"## Tests\n\nTests with the mark `gpu`: {counts}."


def of_engines(result: Result) -> str:
    probes = result["probes"]
    rows = []
    for name, s in result["seconds"].items():
        rows.append((name, f"{s:.3f} s", f"{probes / s:,.0f}"))
    roofline = f"memory's rate, {result['copy_bytes_per_s'] / 1e12:.2f} TB/s of a copy"
    rows.append(
        (roofline, f"{result['roofline_s']:.3f} s", f"{probes / result['roofline_s']:,.0f}")
    )
    text = (
        "## Engines\n\n    scripts/uv run python scripts/bench/simulate_gpu.py\n\n"
        f"{probes:,} full patterns of {result['grid']}² pixels from {result['slices']} slices of "
        "SrTiO3, 200 keV, 20 mrad, float32, copied to the memory of the host; medians.\n\n"
        + table(("program", "time", "patterns/s"), rows)
        + "\n\nThe fused engine differs from the plain one with cuFFT by "
        f"{result['difference']:.1e}. The potential takes {result['specimen_s']:.2f} s more, once "
        "per specimen. A copy to the host has "
        f"{result['host_copy_bytes_per_s'] / 1e9:.0f} GB/s."
    )
    if detector := result.get("detector"):
        y, x = detector["pixels"]
        text += (
            f" With a detector of {y}×{x} pixels, which the card sums, it is "
            f"{detector['seconds']:.3f} s, {probes / detector['seconds']:,.0f} patterns/s."
        )
    kernels = []
    for k in result["kernels"]:
        kernels.append(
            (
                k["kernel"],
                k["batch"],
                f"{k['seconds'] / k['batch'] * 1e6:.2f} µs",
                f"{k['of_a_copy']:.2f}",
                k["registers"],
                k["spilt_bytes"],
            )
        )
    header = ("kernel", "batch", "per probe", "share of a copy's rate", "registers", "spilt, B")
    return text + "\n\n" + table(header, kernels)


def of_networks(result: Result) -> str:
    rows = []
    for name, row in result["networks"].items():
        differences = []
        for answer, error in row.get("differences", {}).items():
            differences.append(f"{answer.replace('_', ' ')} {error:.0e}")
        first_scan = f"{row['first_s']:.2f} s" if "first_s" in row else "–"
        next_scan = f"{row['seconds']:.2f} s" if "seconds" in row else "–"
        rows.append((name, ", ".join(differences), first_scan, next_scan))
    side = result["side"]
    return (
        "## Networks under JAX\n\n    python scripts/bench/networks_jax.py\n\n"
        + table(("network", "differences from a processor", "first scan", "next scan"), rows)
        + f"\n\nA scan has {side}×{side} positions with 33×33 pixels and is reconstructed in eight "
        "views. The first time contains the compilation. The differences are of random windows, "
        "over the largest number, with products in float32. The multislice simulation of the same "
        "scan takes "
        f"{result['simulated_s']:.2f} s on the same card."
    )


def of_step(result: Result) -> str:
    cases = []
    for case in steps(result):
        memory_gib = case["peak_memory_gib"]
        cases.append(
            (
                case["compute"],
                f"{case['step_s'] * 1e3:.0f} ms",
                f"{case['flop_per_s'] / 1e12:.0f}",
                f"{case['peak_flop_per_s'] / 1e12:.0f}",
                f"{case['share_of_peak']:.2f}",
                "–" if memory_gib is None else f"{memory_gib:.1f} GiB",
                f"{case['compile_s']:.0f} s",
            )
        )
    failed = ""
    for case in result:
        if "failed" in case:
            failed += f"\n\n{case['compute']}: {case['failed']}"
    if not cases:
        return f"## A step of paper.yaml\n\nNo case was measured.{failed}"
    first = steps(result)[0]
    shape = "×".join(map(str, first["input_shape"]))
    head = (
        "compute",
        "step",
        "TFLOP/s",
        "of a product of matrices, TFLOP/s",
        "share",
        "memory",
        "compilation",
    )
    return (
        "## A step of paper.yaml\n\n    python scripts/bench/step_jax.py\n\n"
        + table(head, cases)
        + f"\n\nOne sample of {shape}, {first['parameters'] / 1e6:.0f} million parameters, "
        f"{first['step_flop']:.3e} FLOP of convolutions; forward, backward and update, no input."
        f"{failed}"
    )


def of_quickstart(result: Result) -> str:
    times = {
        "simulation of all samples": result["simulation_s"],
        "start of the job": result["start_s"],
        "training": result["steps_s"],
        "evaluation and report": result["evaluation_and_report_s"],
    }
    mean = result["mean"]
    baseline = result["mean_predictor"]
    return (
        "## Quickstart under JAX\n\n    KERAS_BACKEND=jax namsa-train "
        "configs/quickstart.yaml\n\n"
        + table(("phase", "time"), [(name, f"{seconds:.1f} s") for name, seconds in times.items()])
        + f"\n\n{result['steps']:,} steps of {result['step_ms']:.1f} ms, the first of "
        f"{result['first_step_s']:.1f} s. SSIM {mean['ssim']:.3f} and Pearson correlation "
        f"{mean['pearson']:.3f} on "
        f"{result['samples']} samples of held-out materials; the mean image has "
        f"{baseline['ssim']:.3f} and {baseline['pearson']:.3f}."
    )


def of_source(result: Result) -> str:
    rows = []
    for row in result["rows"]:
        rows.append(
            (
                "card" if result["backend"] == "gpu" else "processor",
                row["workers"] or "a thread",
                f"{row['samples_per_s']:.1f}",
                f"{row['worker_s'] * 1e3:.0f} ms",
                f"{row['start_s']:.1f} s",
            )
        )
    shape = "×".join(map(str, result["patterns_of_sample"]))
    return (
        "## Samples of the simulating source\n\n    python scripts/bench/simulate_source.py\n\n"
        + table(("on", "processes", "samples/s", "per sample of one", "to the first"), rows)
        + f"\n\nSamples of configs/reality.yaml: {shape}, {result['samples_of_specimen']} of a "
        "specimen."
    )


def of_training(result: Result) -> str:
    validations = result["validations"]
    rows = []
    for row in validations:
        rows.append((row["epoch"], f"{row['ssim']:.3f}", f"{row['pearson']:.3f}"))
    chosen = []
    if rows:
        for index in sorted({round(k * (len(rows) - 1) / 9) for k in range(10)}):
            chosen.append(rows[index])
    text = (
        "## Training beside the simulation\n\n    python scripts/bench/jobs_jax.py reality\n\n"
        f"The network of configs/reality.yaml was trained for {result['steps_s']:.0f} s, "
        f"{result['steps']:,} steps of 16 samples, from {result['simulated']:,.0f} simulated ones, "
        f"each used four times. It waited {result['waited_for_simulator_s']:.0f} s for the "
        f"simulator. Loss of the first tenth of the steps {result['first_losses']:.4f}, of the "
        f"last {result['last_losses']:.4f}."
    )
    if chosen:
        text += f"\n\n{table(('epoch', 'SSIM', 'Pearson'), chosen)}"
        text += f"\n\nOf {validations[0]['samples']} samples of the dev split."
    return text


SECTIONS: dict[str, Callable[[Result], str]] = {
    "tests": of_tests,
    "engines": of_engines,
    "networks": of_networks,
    "step": of_step,
    "quickstart": of_quickstart,
    "source": of_source,
    "training": of_training,
}


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Returns a Markdown table."""
    head = list(head)
    lines = []
    for row in rows:
        lines.append(list(map(str, row)))
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


if __name__ == "__main__":
    sys.exit(main())
