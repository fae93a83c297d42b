"""Sections of the page on windows: in all, against flows, part by part, and beside the plain published method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accuracy.pages.markdown_tables import table
from bench.measure.result_store import Result
from bench.page.cost_figures import GIB, against_scan, beyond, by_part, middle, points, published_s, times
from bench.page.costs_svg import Line, Panel, fitted
from bench.platforms.mixes import MIXES

WALL, CPU = Line("wall, in all", "#4477aa", ""), Line("processor time", "#228833", "5 4")
SCAN, PUBLISHED = Line("bare scan", "#ccbb44", ""), Line("published, plain", "#aa3377", "")
MEMORY = Line("peak memory", "#ee6677", "")


def panels(results: Sequence[Result]) -> list[Panel]:
    """Return the curves of the page's picture: seconds and memory against flow records."""
    costs = points(results)
    scans = [(one["holds"]["flows"], middle(one["scans"], "wall_s")) for one in results]
    plain = [(one["holds"]["flows"], published_s(one)) for one in results if one["published"]]
    memory = [(flows, peak / GIB) for flows, peak in costs["memory"]]
    seconds = {WALL: costs["wall"], CPU: costs["processor time"], SCAN: scans, PUBLISHED: plain}
    return [Panel("seconds", seconds), Panel("peak memory, GiB", {MEMORY: memory})]


def whole(results: Sequence[Result]) -> Iterator[str]:
    """Yield the section on a whole window."""
    yield "## A window"
    rows = []
    for one in results:
        held, wall = one["holds"], middle(one["runs"], "wall_s")
        rows.append(
            (
                f"{one['gpus']:,}",
                one["mix"],
                f"{held['jobs']:,}",
                f"{held['flows'] / 1e6:.2f} M",
                f"{wall:.2f}",
                f"{beyond(one, 'wall_s'):.2f}",
                f"{middle(one['runs'], 'cpu_s'):.2f}",
                f"{middle(one['runs'], 'peak_bytes') / GIB:.2f}",
                f"{held['flows'] / wall / 1e6:.2f} M",
                f"{middle(one['scans'], 'wall_s'):.3f}",
                f"{against_scan(one):.0f}",
                f"{times(one):,.0f}" if one["published"] else "-",
                str(len(one["runs"])),
            )
        )
    head = (
        *("GPUs", "jobs are", "jobs", "flows", "wall, s", "beyond start, s", "CPU, s", "peak, GiB", "flows a second"),
        *("bare scan, s", "times the scan", "times faster than published", "runs"),
    )
    yield table(head, rows)
    yield (
        "*Jobs are*: " + "; ".join(f"`{name}`, {mix.words}" for name, mix in MIXES.items()) + ". *Beyond start*: "
        "without what a process takes that imports the same and does nothing "
        "(`tools/bench/measure/imports_only.py`). *Bare scan*: DuckDB "
        "reads the same file and groups it by pair (`tools/bench/measure/bare_scan.py`), "
        "in turn with the analyses, on all cores."
    )


def slopes(results: Sequence[Result]) -> Iterator[str]:
    """Yield the section on how cost grows with flows."""
    yield "## Cost against flows"
    yield "![Seconds and memory against flow records, on logarithmic scales](images/performance.svg)"
    rows = []
    for words, several in points(results).items():
        fit = fitted(several)
        rows.append((words, "not enough sizes" if fit is None else f"{fit[0]:.3f}"))
    yield table(("", "slope"), rows)
    yield (
        "The slope is that of the least squares line through the logarithms of all platforms; 1 is in proportion, "
        "and what does not grow, such as imports, makes it less."
    )


def parts(results: Sequence[Result]) -> Iterator[str]:
    """Yield the section on what a window's time is spent for."""
    yield "## Where it goes"
    for gpus in sorted({one["gpus"] for one in results}):
        some = [one for one in results if one["gpus"] == gpus]
        mixes = {one["mix"]: by_part(one["runs"]) for one in some}
        names = dict.fromkeys(name for each in mixes.values() for name in each)
        rows = [[name, *(_part(each.get(name)) for each in mixes.values())] for name in names]
        for stage in some[0]["runs"][0]["stages_s"]:
            rows.append([f"of them {stage}", *(f"{_stage_s(one, stage):.2f}" for one in some)])
        yield table((f"{gpus:,} GPUs", *mixes), rows)
    yield (
        "Wall / processor seconds of the first process, of them reading and writing tables, and its greatest memory "
        "while it ran. *Imports* are those of the pipeline; what the checks and the stages need is imported during "
        "landing. *Of them*: seconds that a stage was at work, in the first process or in its worker, which take parts "
        "of the platform side by side and write tables meanwhile. *The rest* is the interpreter's start and end, what "
        "lies between the parts, and the worker's processor time. Parts and memory are those of runs that were "
        "watched, one after each of the others, for that makes them slower."
    )


def _stage_s(one: Result, stage: str) -> float:
    return middle([run["stages_s"] for run in one["runs"]], stage)


def _part(part: dict[str, float] | None) -> str:
    if part is None:
        return "-"
    text = f"{part['wall_s']:.2f} / {part['cpu_s']:.2f}"
    moved = [f"{side} {part[f'{side}_s']:.2f}" for side in ("read", "write") if part[f"{side}_s"] >= 0.01]
    peak = [f"{part['peak_bytes'] / GIB:.2f} GiB"] if part["peak_bytes"] else []
    return text + (f" ({', '.join([*moved, *peak])})" if moved or peak else "")


def published(results: Sequence[Result]) -> Iterator[str]:
    """Yield the section that compares with the plain published method; nothing if it was not run."""
    measured = [one for one in results if one["published"]]
    if not measured:
        return
    yield "## Against the plain published method"
    rows = []
    for one in measured:
        plain = one["published"]
        rows.append(
            (
                f"{one['gpus']:,} {one['mix']}",
                f"{plain['wall_s']:.1f}",
                f"{plain['observations'] / 1e6:.1f} M",
                f"{plain['sampled'] / plain['library_s']:,.0f}",
                f"{plain['bocd_s']:,.0f}",
                f"{published_s(one):,.0f}",
                f"{times(one):,.0f}",
                f"{plain['agreed']:,} of {plain['marks']:,}",
                f"{plain['sampled'] / plain['textbook_s']:,.0f}",
                f"{times(one, 'textbook_bocd_s'):,.0f}",
            )
        )
    yield table(
        (
            *("", "stages, s", "observations", "a second in Python", "change points, s", "in all, s"),
            *("llmprism is faster, times", "same marks", "a second, our loop", "times, our loop"),
        ),
        rows,
    )
    yield (
        "The published stages (`llmprism_tasks/stages/published`) in memory, with no table written, on all cores, and "
        "Bayesian online change-point detection by the public package bayesian-changepoint-detection, as it comes "
        "(`tools/bench/bocd/library.py`). It is measured on some of the very series that the stages ask about, "
        "drawn at random, "
        "and extrapolated by observations; it is on one core. *Same marks*: of what the compiled kernel or the package "
        "marked in the sample, what both did; the kernel remembers fewer observations of a run, as the setting says. "
        "*Our loop* (`tools/bench/bocd/textbook.py`) is the same algorithm written for speed, in Python over "
        "arrays of numpy: "
        "what a reader of the paper could reach without a compiler."
    )
