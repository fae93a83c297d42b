"""The page `docs/accuracy.md` and its pictures, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from accuracy.families.collectors import CURVES
from accuracy.families.registry import CAPTURED, FAMILIES, FIRST_PUBLISHED_SEED, Bound
from accuracy.pages.curves_svg import LINES, curves
from accuracy.pages.duration_floor import floor, floors_table
from accuracy.pages.known_gaps import confidence_table, gaps
from accuracy.pages.markdown_tables import MEANINGS, families_described, families_table, misses_table, wanted_list
from accuracy.pages.run_totals import Tally, tally
from accuracy.runs.results import Result, kept, version
from accuracy.runs.sources import METHODS, Source, capture_sources, curve_sources, family_sources

Parts = dict[str, dict[str, list[Result]]]
"""Results by part (a family, a capture, a point of a curve) and method."""


def write_page(out: Path, seeds: Sequence[int] | None, folders: Sequence[Path] | None) -> list[Path]:
    """Write the page and, in `images/` beside it, a picture for each curve; returns the files."""
    families = _by_part(family_sources(FAMILIES, seeds), lambda source: source.group)
    captures = _by_part(capture_sources(), lambda source: source.label)
    further = _by_part(capture_sources(folders or []), lambda source: source.label)
    points = _by_part(curve_sources(seeds), lambda source: source.label)
    pictures = [_picture(out.parent / "images", name, points) for name in CURVES]
    results = [
        result
        for parts in (families, captures, further, points)
        for each in parts.values()
        for of in each.values()
        for result in of
    ]
    sections = [
        *_introduction(seeds, results),
        *_families(families),
        *_captures(captures),
        *_further(further),
        *_curves(pictures, seeds),
        *_unknown(families | captures | further),
    ]
    out.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return [out, *pictures]


def _by_part(sources: Iterable[Source], part: Callable[[Source], str]) -> Parts:
    """Collect what was measured; what the present code has not measured yet stands as an earlier one did."""
    parts: Parts = {}
    for source in sources:
        methods = parts.setdefault(part(source), {method: [] for method in METHODS if method in source.methods})
        for method, results in methods.items():
            result = kept(source, method, of_any_version=True)
            if result is not None:
                results.append(result)
    return parts


def _tallies(parts: Parts) -> dict[str, dict[str, Tally | None]]:
    return {
        part: {method: tally(results) if results else None for method, results in methods.items()}
        for part, methods in parts.items()
    }


def _introduction(seeds: Sequence[int] | None, results: Sequence[Result]) -> Iterator[str]:
    """Say how it was measured, and with which code; unfinished pages say so."""
    published = f"Seeds below {FIRST_PUBLISHED_SEED} are for building the method; those from {FIRST_PUBLISHED_SEED} on"
    of = (
        f"{published}, which nothing was built with, made this page."
        if seeds is None
        else f"{published} are published. This page was made from seeds {', '.join(map(str, seeds))}."
    )
    minutes = sum(result["cpu_s"] + result.get("simulate_cpu_s", 0.0) for result in results) / 60
    versions = sorted({str(result["version"]) for result in results})
    yield "# How right it is"
    yield (
        "Written by `make accuracy`; no figure here is typed by hand. Each family is a kind of platform that breaks "
        "something that the published method relies on (`tools/accuracy/families/`). A seed draws its layouts, models, "
        "hosts and times; `llmprism simulate` makes its flows and the truth. `llmprism analyze` reads the flows by its "
        "own method (`joint`) and by the one as published (`method.name=published`), each in a process of its own, and "
        "`llmprism evaluate` counts what is right. All other settings are at their defaults, for every "
        f"scenario or capture. {of}"
    )
    yield (
        "To repeat it: `make accuracy`, which goes on where it was interrupted; `python -m accuracy run --families "
        "plain --seeds 100` for one run; `python -m accuracy wrong` for what was wrong, job by job. "
        f"{len(results)} runs, {minutes:.0f} CPU minutes. Code: {', '.join(versions) or 'none'}."
    )
    if versions not in ([], [version()]):
        yield f"Some or all of it was measured by other code than the present {version()}."


def _families(parts: Parts) -> Iterator[str]:
    tallies, bounds = _tallies(parts), {name: family.bounds for name, family in FAMILIES.items()}
    yield "## Families of scenarios"
    yield families_described()
    yield families_table(tallies, bounds)
    yield MEANINGS
    if left := [name for name, family in FAMILIES.items() if "published" not in family.methods]:
        yield f"The published method is not run on {', '.join(left)}, for its time."
    yield "## What is wanted of the joint method"
    yield wanted_list(bounds)
    yield misses_table({part: methods["joint"] for part, methods in tallies.items()}, bounds)


def _captures(parts: Parts) -> Iterator[str]:
    yield "## Real captures"
    yield (
        "Training runs of PyTorch over TCP, compared with what the ranks logged (`tests/data/README.md`); `coarse` has "
        "a collector's idle timeout of 20 ms instead of 5."
    )
    yield from _folders(parts)
    yield (
        "What no record shows: the true end of these steps is that of the optimizer, which sends nothing and takes its "
        "time on cores that the ranks share. If each step ended with the last record that its ranks saw before they "
        "were done, durations would err by this much, though the truth were known:"
    )
    known = {source.label: source for source in capture_sources() if source.label in parts}
    yield floors_table({label: floor(Path(one.folder), one.flows) for label, one in known.items()})


def _further(parts: Parts) -> Iterator[str]:
    if parts:
        yield "## Further runs"
        yield "Flows with their truth that others made, from folders that were named: `make accuracy FOLDERS=...`."
        yield from _folders(parts)


def _folders(parts: Parts) -> Iterator[str]:
    tallies, bounds = _tallies(parts), dict.fromkeys(parts, CAPTURED)
    yield families_table(tallies, bounds)
    yield wanted_list({"Of each": CAPTURED})
    yield misses_table({part: methods["joint"] for part, methods in tallies.items()}, bounds)


def _picture(folder: Path, name: str, points: Parts) -> Path:
    curve, tallies = CURVES[name], _tallies(points)
    ticks = [shown for shown, _ in curve.values]

    def ratios(method: str, figure: str) -> list[float | None]:
        at = (tallies[f"{name} {tick}"][method] for tick in ticks)
        return [None if tallied is None else tallied[figure] for tallied in at]

    panels = {method: {figure: ratios(method, figure) for figure in LINES} for method in METHODS}
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"accuracy_{name}.svg"
    picture.write_text(curves(curve.title, ticks, panels), encoding="utf-8")
    return picture


def _curves(pictures: Sequence[Path], seeds: Sequence[int] | None) -> Iterator[str]:
    drawn = ", ".join(map(str, seeds or (FIRST_PUBLISHED_SEED,)))
    yield "## When the collector sees less"
    yield (
        f"One platform of two jobs (seed {drawn}), in which only what the axis says is changed. *Pairs right* is the "
        "lowest of precision and recall of all kinds, *confidence* the mean of what `jobs.confidence` says of the jobs "
        "that were found: it should fall where the others do."
    )
    for picture, curve in zip(pictures, CURVES.values(), strict=True):
        yield f"![Accuracy against {curve.title}, for both methods](images/{picture.name})"


def _unknown(parts: Parts) -> Iterator[str]:
    joint = {part: methods["joint"] for part, methods in parts.items()}
    bounds: Mapping[str, Sequence[Bound]] = {
        part: FAMILIES[part].bounds if part in FAMILIES else CAPTURED for part in parts
    }
    yield "## What it does not know"
    yield "What the joint method missed, family by family and capture by capture:"
    yield gaps(joint, bounds)
    yield (
        "Whether it knows when it does not know: how often a row is right, by the confidence it has. A row of "
        "`jobs` is right if its members are exact, it is called training, and no degree it gives is wrong."
    )
    yield confidence_table([result for results in joint.values() for result in results])
