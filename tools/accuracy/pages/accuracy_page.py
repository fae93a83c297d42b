"""The page `docs/accuracy.md` and its pictures, from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from accuracy.families.collectors import CURVES
from accuracy.families.registry import CAPTURED, FAMILIES, FIRST_PUBLISHED_SEED, Bound
from accuracy.pages.curves_svg import LINES, calibration, curves
from accuracy.pages.known_gaps import confidence_shares, confidence_table, gaps, sure_and_right
from accuracy.pages.markdown_tables import (
    MEANINGS,
    families_described,
    families_table,
    floors_table,
    misses_table,
    wanted_list,
)
from accuracy.pages.run_totals import Tally, missed, tally
from accuracy.runs.results import Result, kept, kept_unseen, version
from accuracy.runs.sources import METHODS, Source, curve_sources, family_sources
from accuracy.second_source.cases import CASES

Parts = dict[str, dict[str, list[Result]]]
"""Results by part (a family, a capture, a point of a curve) and method."""


def write_page(out: Path, seeds: Sequence[int] | None) -> list[Path]:
    """Write the page and, in `images/` beside it, a picture for each curve; returns the files."""
    families = _by_part(family_sources(FAMILIES, seeds), lambda source: source.group)
    captures = kept_unseen("capture-")
    points = _by_part(curve_sources(seeds), lambda source: source.label)
    pictures = [_picture(out.parent / "images", name, points) for name in CURVES]
    results = [
        result for parts in (families, points) for each in parts.values() for of in each.values() for result in of
    ]
    certain = [result for each in families.values() for result in each["joint"]]
    certain += [*captures.values(), *_second_source()]
    pictures.append(_calibration(out.parent / "images", certain))
    sections = [
        "# How right it is",
        _so_what(families, captures, certain),
        *_introduction(seeds, [*results, *captures.values()]),
        *_captures(captures),
        *_families(families),
        *_curves(pictures[:-1], seeds),
        *_unknown(families, captures),
        *_calibrated(certain, pictures[-1]),
    ]
    out.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return [out, *pictures]


def _second_source() -> list[Result]:
    """Return what was read of jobs of the second source."""
    return [result for name in CASES for result in kept_unseen(f"case-{name}-").values()]


def _so_what(families: Parts, captures: Mapping[str, Result], certain: Sequence[Result]) -> str:
    """Say in three sentences what the page says."""
    tallies = {name: tally(methods["joint"]) for name, methods in families.items() if methods["joint"]}
    wanted = [(name, bound) for name in tallies for bound in FAMILIES[name].bounds]
    short = [name for name, bound in wanted if missed([bound], tallies[name])]
    but = f", all but {len(short)} ({', '.join(dict.fromkeys(short))})" if short else ", all of them"
    said = [
        f"On simulated platforms, of which each family breaks something that the published method relies on, "
        f"{len(wanted) - len(short)} of {len(wanted)} bounds are met{but}."
    ]
    if captures:
        of = tally(list(captures.values()))
        counts = of["counts"]
        said.append(
            f"On {len({name.split(',')[0] for name in captures})} captures of real training with which nothing was "
            f"built, {counts['exact']} of {counts['windows']} windows of jobs have exactly the right NICs, "
            f"{counts['steps_found']:,} of {counts['steps']:,} steps are found and {counts['steps_extra']:,} are told "
            "that are none."
        )
    else:
        said.append("No captures with which nothing was built are measured.")
    shares = [sure_and_right(certain, of) for of in ("jobs", "pairs")]
    if all(share is not None for share in shares):
        jobs, pairs = (f"{100 * (share or 0):.1f} %" for share in shares)
        said.append(f"Rows with a confidence of at least 0.9 are right in {jobs} of windows of jobs, {pairs} of pairs.")
    return " ".join(said)


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
    yield (
        "Written by `make accuracy`; no figure here is typed by hand. Each family is a kind of platform that breaks "
        "something that the published method relies on (`tools/accuracy/families/`). A seed draws its layouts, models, "
        "hosts and times; `llmprism simulate` makes its flows and the truth. `llmprism analyze` reads the flows by its "
        "own method (`joint`) and by the one as published (`method.name=published`), each in a process of its own, and "
        "`llmprism evaluate` counts what is right. All other settings are at their defaults, for every "
        f"scenario or capture. {of}"
    )
    yield (
        "To repeat it: `make accuracy`, which goes on where it was interrupted; "
        f"`python -m accuracy run --families plain --seeds {FIRST_PUBLISHED_SEED}` for one run; "
        "`python -m accuracy wrong` for what was wrong, job by job. "
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


def _captures(captures: Mapping[str, Result]) -> Iterator[str]:
    yield "## Real training that nothing was built with"
    yield (
        "Training runs of PyTorch over TCP, compared with what the ranks logged. A seed draws what trains, beside "
        "whom, and what goes wrong (`tests/captures/drawn.py`; `tests/captures --drawn 1 2 3` makes the like). "
        "`coarse` has a collector's idle timeout of 20 ms instead of 5."
    )
    if not captures:
        yield "Not measured."
        return
    fine = [result for name, result in captures.items() if "coarse" not in name]
    coarse = [result for name, result in captures.items() if "coarse" in name]
    parts: Parts = {name: {"joint": [result]} for name, result in captures.items()}
    parts |= {words: {"joint": of} for words, of in (("all", fine), ("all, coarse", coarse)) if of}
    tallies, bounds = _tallies(parts), dict.fromkeys(("all", "all, coarse"), CAPTURED)
    yield families_table(tallies, bounds)
    yield wanted_list({"Of all together": CAPTURED})
    yield misses_table({part: methods["joint"] for part, methods in tallies.items()}, bounds)
    yield (
        "What no record shows: the true end of these steps is that of the optimizer, which sends nothing and takes its "
        "time on cores that the ranks share. If each step ended with the last record that its ranks saw before they "
        "were done, durations would err by this much, though the truth were known:"
    )
    yield floors_table({name: result["floor"] for name, result in captures.items()})


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


def _unknown(families: Parts, captures: Mapping[str, Result]) -> Iterator[str]:
    joint = {part: methods["joint"] for part, methods in families.items()}
    joint |= {f"capture {name}": [result] for name, result in captures.items()}
    bounds: Mapping[str, Sequence[Bound]] = {
        part: FAMILIES[part].bounds if part in FAMILIES else CAPTURED for part in joint
    }
    yield "## What it does not know"
    yield "What the joint method missed, family by family and capture by capture:"
    yield gaps(joint, bounds)


def _calibrated(certain: Sequence[Result], picture: Path) -> Iterator[str]:
    yield "## Whether it knows when it does not know"
    yield (
        "How often a row is right, by the confidence it has: of all families, of the captures above, and of the jobs "
        "of the second source of traffic (`docs/second_source.md`). A row of `jobs` is right if "
        "its members are exact, it is called training, and no degree it gives is wrong."
    )
    yield f"![How often rows are right, by confidence](images/{picture.name})"
    yield confidence_table(certain)


def _calibration(folder: Path, certain: Sequence[Result]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "accuracy_confidence.svg"
    picture.write_text(calibration({of: confidence_shares(certain, of) for of in ("jobs", "pairs")}), encoding="utf-8")
    return picture
