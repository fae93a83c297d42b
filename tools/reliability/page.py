"""The page on reliability: what was disturbed, and what became of the tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from reliability import flood, fuzz, fuzz_commands, growth, kills
from reliability.faults import FAULTS
from reliability.results import kept

INTRODUCTION = """# Reliability

Written by `python -m reliability page` from what `python -m reliability` measured. A measurement that was made in parts
names the commit of each.
"""


NOT_MEASURED = "Not measured yet."


def write(out: Path) -> Path:
    """Write the page."""
    out.write_text(
        "\n".join([INTRODUCTION, *_kills(), *_fuzz(), *_flood(), *_hosts(), *_live(), *_growth(), *_faults()]),
        encoding="utf-8",
    )
    return out


def _kills() -> Iterator[str]:
    yield "## Killed at random moments\n"
    yield (
        "`python -m reliability kills`: an analysis of two minutes is killed (SIGKILL, with all its processes) at a\n"
        "moment drawn uniformly from its duration, then run again. All tables are compared with those of an\n"
        "undisturbed run.\n"
    )
    yield "| warehouse | runs | killed | tables differ | left behind | next run failed | commit, day |"
    yield "|---|---|---|---|---|---|---|"
    for name in kills.LOCATIONS:
        if found := kept(f"kills-{name}"):
            cells = (name, found["runs"], found["killed"], len(found["differ"]), len(found["left"]), found["failed"])
            yield f"| {' | '.join(map(str, cells))} | {found['commit']}, {found['day']} |"
    yield ""


def _hosts() -> Iterator[str]:
    yield "## A machine of two killed\n"
    yield (
        "`python -m reliability hosts`: two Celery workers with host names and folders of their own, PostgreSQL and\n"
        "Redis. In the midst of a backfill all processes of one worker are killed, which starts again, then of one or\n"
        "the other, at random moments. When the backfill has ended, all tables are compared with those of one\n"
        "`llmprism analyze` on a file.\n"
    )
    if found := kept("hosts"):
        noticed = found["noticed_s"] or [0.0]
        yield "| kills | backfills | tasks that died | noticed after, s | tables differ | left behind | commit, day |"
        yield "|---|---|---|---|---|---|---|"
        yield (
            f"| {found['kills']} | {found['backfills']}, of {' or '.join(map(str, sorted(set(found['windows']))))} "
            f"windows | {found['tasks']} "
            f"| {statistics.median(noticed):.0f}, at most {max(noticed):.0f} "
            f"| {len(found['differ'])} | {found['left']} | {found['commit']}, {found['day']} |"
        )
    else:
        yield NOT_MEASURED
    yield ""


def _fuzz() -> Iterator[str]:
    yield "## Damaged and hostile files\n"
    yield (
        "Files of every format with odd values, flipped, cut, doubled and foreign bytes, in folders with odd names.\n"
        "`python -m reliability fuzz` lands them: each record is landed or quarantined, and counted as its file holds\n"
        "it; or the file is refused in one sentence. `python -m reliability fuzz-commands` gives such files, one in\n"
        "ten with a damaged topology, to `llmprism analyze`, each in a process of its own: it ends with 0 and counts\n"
        "that add up, or with 1 and one sentence, and never with a traceback.\n"
    )
    yield "| how | cases | landed | refused | miscounted | otherwise wrong | peak memory, MB | commit, day |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, outcomes in (("fuzz", fuzz.OUTCOMES), ("fuzz-commands", fuzz_commands.OUTCOMES)):
        if found := kept(name):
            cells = (name, found["cases"], *(found["counts"][one] for one in outcomes), found["peak_mb"])
            yield f"| {' | '.join(map(str, cells))} | {found['commit']}, {found['day']} |"
    yield ""


def _flood() -> Iterator[str]:
    yield "## A flood of addresses\n"
    yield (
        "`python -m reliability flood`: in a minute of a small platform, addresses that the topology does not list\n"
        "send a flow each. `llmprism analyze` runs that minute, the next one, which looks back at it, and the\n"
        "seventh, which does not; and the same minutes without the flood.\n"
    )
    if found := kept("flood"):
        yield "| unknown addresses | minute | memory, MB | CPU, s | commit, day |"
        yield "|---|---|---|---|---|"
        for name, addresses in (("without", 0), ("with", found["addresses"])):
            for minute, peak_mb, cpu_s in zip(
                (0, *flood.LATER), found[name]["peak_mb"], found[name]["cpu_s"], strict=True
            ):
                made = f"{found['commit']}, {found['day']}"
                yield f"| {addresses:,} | {minute} | {peak_mb} | {cpu_s:.1f} | {made} |"
        yield (
            f"\nOf {found['sent']:,} records {found['read']:,} were read, {found['landed']:,} landed and "
            f"{found['put_aside']:,} put aside."
        )
    else:
        yield NOT_MEASURED
    yield ""


def _live() -> Iterator[str]:
    yield "## A live feed, and a scheduler that is away\n"
    yield (
        "`python -m reliability live`: simulated flows come to files by the time of receipt, some a minute late, in\n"
        "real time. Airflow's scheduler is stopped meanwhile. What Airflow had not caught up when patience ended was\n"
        "run by `llmprism due --run`. Then all tables are compared with those of one `llmprism analyze` of all files.\n"
    )
    if found := kept("live"):
        away, took = found["away"], found["run_s"] or {"median": 0.0, "longest": 0.0}
        after = found["missing_after_outage"]["coverage"]
        rows = {
            "minutes of the feed; scheduler away": f"{found['minutes']}; {away[1]} minutes, after {away[0]}",
            "a run took, s (median, longest)": f"{took['median']:.0f}, {took['longest']:.0f}",
            "the report after the outage": _listed(after),
            "missed deadlines that Airflow's triggerer warned of": found["missed_deadlines"],
            "metrics when most windows were due": _listed(found["metrics_at_worst"]),
            "messages about the pipeline": ", ".join(found["told"]) or "none",
            "metrics at the end": _listed(found["metrics"]),
            "minutes that Airflow had done by itself; some may have been due again": found["caught_up"],
            "minutes done in the end": found["done"],
            "records sent; landed or quarantined": f"{found['sent']:,}; {found['counted']:,}",
            "tables that differ": ", ".join(found["differ"]) or "none",
            "commit, day": f"{found['commit']}, {found['day']}",
        }
        yield "| what | found |"
        yield "|---|---|"
        yield from (f"| {what} | {value} |" for what, value in rows.items())
    else:
        yield NOT_MEASURED
    yield ""


def _listed(values: Mapping[str, object]) -> str:
    return (
        ", ".join(
            f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
        )
        or "none"
    )


def _growth() -> Iterator[str]:
    yield "## Growth\n"
    yield (
        "`python -m reliability growth`: a minute's rows are written again and again, moved in time, and\n"
        "`llmprism expire` runs after each hour.\n"
    )
    if not any(kept(f"growth-{name}") for name in growth.LOCATIONS):
        yield f"{NOT_MEASURED}\n"
        return
    yield "| warehouse | flows a minute | flows, timeline, results kept | minutes in an hour: megabytes | commit, day |"
    yield "|---|---|---|---|---|"
    for name in growth.LOCATIONS:
        if found := kept(f"growth-{name}"):
            limits = found["retention"]
            results = f"{24 * limits['results_d']:g} h" if limits["results_d"] else "for ever"
            cells = (
                name,
                f"{found['flows_per_window']:,}",
                f"{limits['flows_h']:g} h, {limits['timeline_h']:g} h, {results}",
                f"{found['minutes_an_hour']}: " + ", ".join(f"{size / 1e6:.0f}" for size in found["bytes"]),
            )
            yield f"| {' | '.join(cells)} | {found['commit']}, {found['day']} |"
    yield ""


def _faults() -> Iterator[str]:
    yield "## Faults, and the tests that hold them off\n"
    yield "| what may go wrong | test |"
    yield "|---|---|"
    yield from (f"| {what} | `{test}` |" for what, test in FAULTS)
    yield ""
