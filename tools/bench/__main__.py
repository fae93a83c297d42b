"""`python -m bench run`, `airflow`, `week` or `page`: measure analyses, Airflow or the pages; write a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from accuracy.runs.sources import PROJECT
from bench.measure.cold_start import cold_start
from bench.measure.platform_run import measure
from bench.measure.process_cost import ProcessFailed, python
from bench.measure.result_store import keep, kept
from bench.page.performance_page import write_page
from bench.platforms.minutes import FOLDER, Platform, simulated
from bench.platforms.mixes import MIXES, SIZES
from demo.local_airflow import LocalAirflowError

LARGEST_PUBLISHED = 8_192
"""GPUs up to which the plain published method is run: it takes more than a gigabyte for a million flow records."""

console = Console(highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code: 1 if something failed."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "run":
            _run(arguments)
        elif arguments.command == "airflow":
            _airflow(arguments)
        elif arguments.command == "week":
            _week(arguments)
        else:
            for file in write_page(arguments.out):
                _say(f"Written: {file}")
    except (ProcessFailed, LocalAirflowError) as error:
        _say(str(error))
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    if "starts" not in arguments.without:
        keep("kernel", {"cases": json.loads(python("-m", "bench.bocd.speed").said)})
        _say("change points: done")
        keep("cold", cold_start(arguments.runs))
        _say("starting: done")
    for gpus in arguments.gpus:
        for mix in arguments.mixes:
            platform = Platform(mix, gpus)
            simulated(platform, 1, _say)
            published = "published" not in arguments.without and mix == next(iter(MIXES)) and gpus <= LARGEST_PUBLISHED
            keep(f"platform-{mix}-{gpus}", measure(platform, runs=arguments.runs, published=published, say=_say))


def _airflow(arguments: argparse.Namespace) -> None:
    from bench.measure.airflow_latency import scheduled_minutes  # noqa: PLC0415 - the demo's Airflow, for this command alone

    for gpus in arguments.gpus:
        platform = Platform(arguments.mix, gpus)
        result = scheduled_minutes(platform, arguments.minutes, _say)
        keep(f"airflow-{gpus}-{result['lookback']}", result)


def _week(arguments: argparse.Namespace) -> None:
    from bench.week import make_week, open_pages, speed_page  # noqa: PLC0415 - a browser, for this command alone

    if not arguments.warehouse.exists():
        arguments.warehouse.parent.mkdir(parents=True, exist_ok=True)
        make_week.make_week(arguments.warehouse, hours=arguments.hours, say=_say)
    keep("week", open_pages.measured(arguments.warehouse, opens=arguments.opens, say=_say))
    speed_page.write(kept("week") or {}, arguments.out)
    _say(f"Written: {arguments.out}")


def _say(line: str) -> None:
    console.print(line, markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--gpus", type=int, nargs="+", choices=SIZES, default=SIZES, help="default: all sizes")
    run = commands.add_parser("run", parents=[common])
    run.add_argument("--mixes", nargs="+", choices=MIXES, default=list(MIXES), help="default: all")
    run.add_argument("--runs", type=int, default=3, help="of each analysis; default: 3")
    run.add_argument("--without", nargs="+", choices=("published", "starts"), default=(), help="leave out")
    airflow = commands.add_parser("airflow", parents=[common])
    airflow.add_argument("--mix", choices=MIXES, default=next(iter(MIXES)))
    airflow.add_argument("--minutes", type=int, default=10, help="scheduled minutes; default: 10")
    week = commands.add_parser("week", help="how fast pages of a week of results of 2,880 GPUs open; needs Chromium")
    week.add_argument("--warehouse", type=Path, default=FOLDER / "week.duckdb", help="made first if it is not there")
    week.add_argument("--hours", type=int, default=168, help="of results; default: a week")
    week.add_argument("--opens", type=int, default=5, help="of each page; default: 5")
    week.add_argument("--out", type=Path, default=PROJECT / "docs" / "pages.md")
    page = commands.add_parser("page")
    page.add_argument("--out", type=Path, default=PROJECT / "docs" / "performance.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
