"""`python -m accuracy run`, `scores`, `prices`, `wrong`, `page`, `diagnosis`, `second`, `tables`: measure, show."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from accuracy.equality import equality
from accuracy.equality.answers import ANSWERS
from accuracy.families.registry import FAMILIES, FIRST_PUBLISHED_SEED, TROUBLES
from accuracy.pages.accuracy_page import write_page
from accuracy.pages.diagnosis_page import write_diagnosis
from accuracy.pages.mistakes import wrongs
from accuracy.pages.score_table import table_of_scores
from accuracy.pages.second_source_page import write_second_source
from accuracy.runs.fault_costs import PUBLISHED_SEEDS, prices
from accuracy.runs.judged_runs import Judged, capture_runs, case_runs, fault_runs, healthy_runs, run_judged
from accuracy.runs.results import keep_prices, kept
from accuracy.runs.runner import run_missing
from accuracy.runs.sources import EVERY_FAMILY, METHODS, PROJECT, Source, capture_sources, curve_sources, family_sources
from accuracy.second_source.cases import CASES
from llmprism_tasks.reports.evaluation.score_tables import WIDTH

GROUPS = (*FAMILIES, "curves", "captures")
"""What the page on accuracy is made of; troubles are run when they are named."""

_FIRST = FIRST_PUBLISHED_SEED
PUBLISHED = {
    "faults": range(_FIRST, _FIRST + 60),
    "seeds": range(_FIRST, _FIRST + 2),
    "healthy": range(_FIRST, _FIRST + 3),
}
"""Seeds of the second source: four of each kind of fault, two of each kind of job."""

console = Console(highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code: 1 if a run failed."""
    arguments = _parser().parse_args(argv)
    failed: list[str] = []
    if arguments.command == "prices":
        for seed in arguments.seeds or PUBLISHED_SEEDS:
            keep_prices(seed, list(prices(seed=seed)))
    elif arguments.command == "run":
        failed = run_missing(_sources(arguments), arguments.method or METHODS, jobs=arguments.jobs, say=_say)
    elif arguments.command == "judge":
        failed = _judge(arguments)
    elif arguments.command == "scores":
        failed = _scores(arguments.folders)
    elif arguments.command == "tables":
        return 0 if _tables(arguments) else 1
    elif arguments.command == "wrong":
        _tell_wrongs(arguments)
    else:
        for line in _pages(arguments):
            _say(line)
    for line in failed:
        _say(f"Failed: {line}")
    return 1 if failed else 0


def _judge(arguments: argparse.Namespace) -> list[str]:
    """Judge what is named; then, if wanted, measure the families with what time is left, and write all pages."""
    until_s = time.monotonic() + 60 * arguments.minutes
    failed = run_judged(list(_judged(arguments)), until_s=until_s, jobs=arguments.jobs, say=_say)
    if arguments.final:
        sources = family_sources(FAMILIES, arguments.final)
        failed += run_missing(sources, METHODS[:1], jobs=arguments.jobs, say=_say, until_s=until_s)
        docs = PROJECT / "docs"
        for file in write_page(docs / "accuracy.md", arguments.final):
            _say(f"Written: {file}")
        for line in write_second_source(docs / "second_source.md"):
            _say(line)
        _say(f"Written: {write_diagnosis(docs / 'diagnosis.md', None)}")
    return failed


def _judged(arguments: argparse.Namespace) -> Iterator[Judged]:
    """Yield what is to be judged: captures first, of which there are fewest."""
    yield from capture_runs(arguments.folders or [])
    default = PUBLISHED if arguments.published else {}
    yield from fault_runs(arguments.faults or default.get("faults", ()))
    yield from case_runs(arguments.cases, arguments.seeds or default.get("seeds", ()))
    yield from healthy_runs(arguments.healthy or default.get("healthy", ()))


def _scores(folders: Sequence[Path]) -> list[str]:
    sources = list(capture_sources(folders or None))
    if not sources:
        return [f"no flows beside truth/ in {', '.join(map(str, folders))}"]
    Console(width=WIDTH).print(table_of_scores(sources))
    return []


def _pages(arguments: argparse.Namespace) -> Iterator[str]:
    if arguments.command == "second":
        yield from write_second_source(arguments.out)
    elif arguments.command == "diagnosis":
        yield f"Written: {write_diagnosis(arguments.out, arguments.seeds)}"
    else:
        for file in write_page(arguments.out, arguments.seeds):
            yield f"Written: {file}"


def _tables(arguments: argparse.Namespace) -> bool:
    return equality.run(
        list(equality.inputs(arguments.rows, arguments.only)),
        arguments.ways,
        rows=arguments.rows,
        write=arguments.write,
        left_out=arguments.leave_out,
        jobs=arguments.jobs,
        say=_say,
    )


def _tell_wrongs(arguments: argparse.Namespace) -> None:
    for source in _sources(arguments):
        for method in arguments.method or METHODS[:1]:
            for job, words in _wrongs(source, method):
                _say(f"{source.group} {source.label}, {method}, {job}: {words}")


def _wrongs(source: Source, method: str) -> list[tuple[str, str]]:
    result = kept(source, method)
    return [("all", "not measured")] if result is None else list(wrongs(result))


def _say(line: str) -> None:
    console.print(line, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m accuracy", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--seeds", type=int, nargs="+", help="of families and curves; default: the published ones")
    common.add_argument("--folders", type=Path, nargs="+", help="with flows, topology.csv and truth/, besides captures")
    for name in ("run", "wrong"):
        chosen = commands.add_parser(name, parents=[common])
        chosen.add_argument(
            "--families", nargs="+", choices=(*GROUPS, *TROUBLES, "troubles"), default=GROUPS, metavar="NAME"
        )
        chosen.add_argument("--method", nargs="+", choices=METHODS)
        chosen.add_argument("--jobs", type=int, default=1, help="processes at a time; default: 1")
    scores = commands.add_parser("scores", help="analyse folders and print how right the results are")
    scores.add_argument("folders", type=Path, nargs="*", help="with flows, topology.csv and truth/; default: captures")
    page = commands.add_parser("page", parents=[common])
    page.add_argument("--out", type=Path, default=PROJECT / "docs" / "accuracy.md")
    commands.add_parser("prices", parents=[common])
    diagnosis = commands.add_parser("diagnosis", parents=[common])
    diagnosis.add_argument("--out", type=Path, default=PROJECT / "docs" / "diagnosis.md")
    second = commands.add_parser("second", help="the page of the second source of traffic")
    second.add_argument("--out", type=Path, default=PROJECT / "docs" / "second_source.md")
    _add_judge(commands)
    _add_tables(commands)
    return parser


def _add_judge(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    judge = commands.add_parser("judge", help="jobs and faults of the second source, and captures; resumes")
    judge.add_argument("--faults", type=int, nargs="+", metavar="SEED", help="of platforms on which something is wrong")
    judge.add_argument("--healthy", type=int, nargs="+", metavar="SEED", help="of platforms on which nothing is wrong")
    judge.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="of the cases")
    judge.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    judge.add_argument("--folders", type=Path, nargs="+", help="captures: with flows, topology.csv and truth/")
    judge.add_argument("--published", action="store_true", help="the seeds that are published, of all of these")
    judge.add_argument(
        "--final", type=int, nargs="+", metavar="SEED", help="then the families of these seeds, and all pages"
    )
    judge.add_argument("--minutes", type=float, default=600.0, help="nothing is begun after so many; default: 600")
    judge.add_argument("--jobs", type=int, default=1, help="processes at a time; default: 1")


def _add_tables(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tables = commands.add_parser("tables", help="hold every table against what an earlier version wrote")
    doing = tables.add_mutually_exclusive_group(required=True)
    doing.add_argument("--write", action="store_true", help="make what this version writes the reference")
    doing.add_argument("--check", action="store_true", help="say what differs from the reference")
    tables.add_argument("--only", nargs="+", default=(), metavar="NAME", help="such as demo or 'captures/*'")
    tables.add_argument(
        "--ways", nargs="+", choices=equality.WAYS, default=equality.WAYS, help="to check; default: all"
    )
    tables.add_argument("--leave-out", nargs="+", choices=ANSWERS, default=(), help="not compared; default: none")
    tables.add_argument("--rows", type=Path, default=equality.ROWS, help="folder with the rows behind it")
    tables.add_argument("--jobs", type=int, default=1, help="processes at a time; default: 1")


def _sources(arguments: argparse.Namespace) -> Iterator[Source]:
    named = [*arguments.families, *(TROUBLES if "troubles" in arguments.families else ())]
    yield from family_sources([name for name in named if name in EVERY_FAMILY], arguments.seeds)
    if "curves" in arguments.families:
        yield from curve_sources(arguments.seeds)
    if "captures" in arguments.families:
        yield from capture_sources()
    yield from capture_sources(arguments.folders or [])


if __name__ == "__main__":
    sys.exit(main())
