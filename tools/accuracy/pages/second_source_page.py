"""The page of the second source of traffic: what is read of jobs, and said of faults, that the first cannot make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from accuracy.families.registry import Bound
from accuracy.pages.judged_tables import MEANINGS, WANTED, faults_table, misses, quiet
from accuracy.pages.known_gaps import confidence_table
from accuracy.pages.markdown_tables import families_table, table
from accuracy.pages.run_totals import tally
from accuracy.runs.results import Result, kept_unseen, version
from accuracy.second_source.cases import CASES
from accuracy.second_source.fault_cases import STRIKES

ABOUT = """`python -m accuracy second` writes this page from what `python -m accuracy judge` measured. Its jobs come
from `tools/accuracy/second_source`, which shares no code with `llmprism simulate`: steps follow from the order of their
operations, collectives are NCCL's rings, trees and all-to-alls, a record for each channel. A seed draws all
parameters; nothing was built with the seeds of this page. A step's duration is that up to the end of its gradients'
synchronisation."""

BOUNDS = (
    *(Bound(f"{kind}_{side}", 0.97) for kind in ("dp", "pp", "ep", "cp") for side in ("precision", "recall")),
    Bound("steps_found", 0.98),
    Bound("exact", 0.98),
)
"""What is wanted of each kind of job; extra steps are counted against all, at most 2 %."""


def write_second_source(page: Path) -> Iterator[str]:
    """Write the page of all published seeds that are measured, and yield the file's name."""
    cases = {name: kept_unseen(f"case-{name}-") for name in CASES}
    faults, healthy = (kept_unseen(prefix) for prefix in ("fault-", "healthy-"))
    sections = ["# A second source of traffic", *so_what(cases, faults, healthy), ABOUT, *_cases(cases)]
    sections += [*_faults(faults, healthy), *_about(cases, faults, healthy)]
    page.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    yield f"Written: {page}"


def so_what(
    cases: Mapping[str, Mapping[str, Result]], faults: Mapping[str, Result], healthy: Mapping[str, Result]
) -> Iterator[str]:
    """Yield three sentences: how jobs are read, what is said of faults, and what is said of nothing."""
    every = [result for results in cases.values() for result in results.values()]
    said = []
    if every:
        of = tally(every)
        counts = of["counts"]
        said.append(
            f"Of jobs that another simulator made, {counts['exact']} of {counts['windows']} windows have exactly the "
            f"right NICs, and {counts['steps_found']:,} of {counts['steps']:,} steps are found, with "
            f"{counts['steps_extra']:,} that are none."
        )
    asked = [one for result in faults.values() for one in result["verdicts"] if one["asked"]]
    if asked:
        told, first, kind = (sum(one[figure] for one in asked) for figure in WANTED)
        said.append(
            f"Of {len(asked)} faults whose effect follows from its own model, {told} are told, {first} with the right "
            f"suspect first, {kind} as what they are."
        )
    if faults or healthy:
        said.append(quiet([*faults.values(), *healthy.values()]))
    yield " ".join(said) or "Not measured."


def _cases(cases: Mapping[str, Mapping[str, Result]]) -> Iterator[str]:
    yield "## Jobs"
    named = {name.replace("_", " "): list(results.values()) for name, results in cases.items()}
    tallies = {name: {"joint": tally(results) if results else None} for name, results in named.items()}
    yield families_table(tallies, dict.fromkeys(tallies, BOUNDS))
    yield table(
        ("kind", "what"), ((name.replace("_", " "), (make.__doc__ or "").strip()) for name, make in CASES.items())
    )
    every = [result for results in named.values() for result in results]
    if every:
        yield "How often rows were right, by the confidence they had:"
        yield confidence_table(every)


def _faults(faults: Mapping[str, Result], healthy: Mapping[str, Result]) -> Iterator[str]:
    yield "## Faults"
    verdicts = [one for result in faults.values() for one in result["verdicts"]]
    yield faults_table(verdicts) if verdicts else "Not measured."
    yield MEANINGS
    yield "Kinds of fault, by turns of the seeds:"
    yield "\n".join(f"- `{name}`: {(strike.__doc__ or '').strip()}" for name, strike in STRIKES.items())
    yield from misses(
        {f"seed {seed}": result for seed, result in faults.items()}
        | {f"healthy {seed}": result for seed, result in healthy.items()}
    )


def _about(
    cases: Mapping[str, Mapping[str, Result]], faults: Mapping[str, Result], healthy: Mapping[str, Result]
) -> Iterator[str]:
    results = [*faults.values(), *healthy.values(), *(one for of in cases.values() for one in of.values())]
    versions = sorted({str(result["version"]) for result in results})
    minutes = sum(result["cpu_s"] for result in results) / 60
    seeds = sorted({int(seed) for results in cases.values() for seed in results})
    yield (
        f"Seeds of jobs: {', '.join(map(str, seeds)) or 'none'}; of faults: {', '.join(faults) or 'none'}; of "
        f"platforms on which nothing is wrong: {', '.join(healthy) or 'none'}. {minutes:.0f} CPU minutes. Code: "
        f"{', '.join(versions) or 'none'}."
    )
    if versions not in ([], [version()]):
        yield f"Some or all of it was measured by other code than the present {version()}."
