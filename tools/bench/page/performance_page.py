"""The page `docs/performance.md` and its picture, from what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from accuracy.pages.markdown_tables import table
from bench.measure.result_store import Result, kept, version
from bench.page.cost_figures import middle
from bench.page.costs_svg import picture
from bench.page.sections import panels, parts, published, slopes, whole
from bench.page.targets import LOOKBACK, wanted
from bench.platforms.mixes import MIXES, PART_HOSTS, SIZES


def write_page(out: Path) -> list[Path]:
    """Write the page and the picture beside it; returns the files."""
    results = [result for gpus in SIZES for mix in MIXES if (result := kept(f"platform-{mix}-{gpus}")) is not None]
    kernel, cold = kept("kernel"), kept("cold")
    lookbacks = range(LOOKBACK, -1, -1)
    airflow = [found for gpus in SIZES for back in lookbacks if (found := kept(f"airflow-{gpus}-{back}")) is not None]
    sections = [*_introduction([*results, *filter(None, [kernel, cold]), *airflow])]
    files = [out]
    if results:
        drawn = out.parent / "images" / "performance.svg"
        drawn.parent.mkdir(parents=True, exist_ok=True)
        drawn.write_text(picture(panels(results)), encoding="utf-8")
        files.append(drawn)
        sections += [*wanted(results, kernel, airflow), *whole(results), *slopes(results), *parts(results)]
        sections += published(results)
    sections += [*_kernel(kernel), *_cold(cold), *_airflow(airflow), *_how()]
    out.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return files


def _introduction(results: Sequence[Result]) -> Iterator[str]:
    versions = sorted({str(result["version"]) for result in results})
    yield "# What it costs"
    yield (
        "Written by `make bench`; no figure here is typed by hand. `llmprism analyze` takes one window, a minute of "
        "flow records in a Parquet file, through all stages to written tables, with every setting at its default. "
        "Each run is a process of its own; figures are medians. "
        f"Code: {', '.join(versions) or 'none'}."
    )
    if versions not in ([], [version()]):
        yield f"Some or all of it was measured by other code than the present {version()}."
    for machine in _distinct([result["machine"] for result in results]):
        libraries = ", ".join(f"{name} {number}" for name, number in machine["libraries"].items())
        yield (
            f"Machine: {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB of memory, "
            f"{machine['system']}, Python {machine['python']}, {libraries}."
        )
    if loads := [result["load"] for result in results]:
        yield f"Load averages of the machine when results were written, this work included: {_span(loads, '.1f')}."


def _distinct(machines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for at, one in enumerate(machines) if one not in machines[:at]]


def _span(values: Sequence[float], form: str) -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


def _kernel(kernel: Result | None) -> Iterator[str]:
    yield "## Change points"
    if kernel is None:
        yield "Not measured."
        return
    yield table(
        ("series", "million a second, median", "best", "a loop in Python", "other marks than the loop's"),
        (
            (
                case["case"],
                f"{case['per_s'] / 1e6:.2f}",
                f"{case['best_per_s'] / 1e6:.2f}",
                f"{case['python_per_s'] / 1e6:.3f}",
                f"{case['other_marks']} beside {case['marks']}",
            )
            for case in kernel["cases"]
        ),
    )
    yield (
        "Observations that `stages/published/kernels/bocpd.py` takes in on one core, by its own processor time. "
        "The tests hold it to the textbook's recursion over random series."
    )


def _cold(cold: Result | None) -> Iterator[str]:
    yield "## Starting"
    if cold is None:
        yield "Not measured."
        return
    yield table(
        ("", "wall, s", "CPU, s"),
        (
            ("`llmprism --help`", f"{cold['help_s']:.2f}", ""),
            (
                "`llmprism analyze`, three minutes of a small capture",
                f"{cold['warm_s']:.2f}",
                f"{cold['warm_cpu_s']:.2f}",
            ),
            ("the same with no kernel compiled yet", f"{cold['empty_s']:.2f}", f"{cold['empty_cpu_s']:.2f}"),
        ),
    )
    libraries = ", ".join(f"{name} {taken:.0f}" for name, taken in cold["imports_ms"].items())
    yield f"What `analyze` imports, milliseconds by library (`python -X importtime` adds some): {libraries}."


def _airflow(results: Sequence[Result]) -> Iterator[str]:
    yield "## In Airflow"
    if not results:
        yield "Not measured: `python -m bench airflow`."
        return
    rows = []
    for one in results:
        delays = [run["written_s"] for run in one["runs"]]
        rows.append(
            (
                f"{one['gpus']:,} {one['mix']}",
                str(one["lookback"]),
                str(len(delays)),
                f"{one['median_s']:.1f}",
                f"{max(delays):.1f}",
                *(
                    f"{middle(one['runs'], part):.1f}"
                    for part in ("created_s", "working_s", "between_s", "computing_s")
                ),
            )
        )
    yield table(
        (
            *("", "look-back, windows", "windows", "diagnoses written, s after the window's end", "longest"),
            *("run begins, s", "tasks running, s", "between tasks, s", "the pipeline's own work, s"),
        ),
        rows,
    )
    for one in results:
        names = dict.fromkeys(name for each in one["runs"] for name in each["tasks_s"])
        tasks = [(name, statistics.median(each["tasks_s"].get(name, 0.0) for each in one["runs"])) for name in names]
        said = ", ".join(f"`{name}` {seconds:.1f}" for name, seconds in tasks)
        yield f"Tasks at {one['gpus']:,} GPUs, look-back {one['lookback']}, median seconds from start to end: {said}."
    yield (
        "Scheduled minutes of a real Airflow (SQLite, LocalExecutor), whose flows appear as each minute ends; three "
        "simulated minutes come again and again, their steps going on. All windows have their whole look-back, of as "
        "many windows before them; what is not the default was set by `LLMPRISM_WINDOW__LOOKBACK_WINDOWS`. *Run "
        "begins*: after the window's end. *Tasks running*: when at least one task of the run was, until the diagnoses "
        "were written; *between tasks*: when none was, which is scheduling and starting. *The pipeline's own work* is "
        "what its parts took as they themselves say; the rest of the running tasks is their start, imports and talk "
        "with the scheduler."
    )


def _how() -> Iterator[str]:
    yield "## How it is measured"
    yield (
        "`make bench` does all but Airflow; `python -m bench run --gpus 2880` one size; `python -m bench airflow` the "
        "scheduled minutes. Platforms are simulated by the code of `llmprism simulate`, once, into `.bench/`. "
        f"A large one is simulated some jobs at a time, at most {PART_HOSTS:,} hosts of them on the whole fabric, and "
        "the records are merged by time: in the simulator tenants do not meet, so this is one platform, but for the "
        "seeds of its jitter. Files are in the page cache when they are read."
    )
