"""`python -m reliability <measurement>` or `page`: disturb llmprism or let it grow, and write what was measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from llmprism_tasks.settings import RetentionSettings
from reliability import flood, fuzz, fuzz_commands, growth, hosts, kills, live, page
from reliability.results import keep

PROJECT = Path(__file__).resolve().parents[2]

ADDED = "add what is found to what was measured before, with another seed"

console = Console(highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code: 1 if the tables were not what they should be."""
    arguments = _parser().parse_args(argv)
    return int(arguments.run(arguments))


def _kills(arguments: argparse.Namespace) -> bool:
    found = kills.measure(arguments.warehouse, arguments.runs, seed=arguments.seed, say=console.print)
    keep(f"kills-{arguments.warehouse}", found, add=arguments.add)
    console.print(kills.sentence(found))
    return not kills.is_sound(found)


def _growth(arguments: argparse.Namespace) -> bool:
    retention = RetentionSettings(
        flows_h=arguments.flows_h, timeline_h=arguments.timeline_h, results_d=arguments.results_h / 24
    )
    found = growth.measure(
        arguments.warehouse,
        scenario=arguments.scenario,
        hours=arguments.hours,
        retention=retention,
        say=console.print,
        minutes_an_hour=arguments.minutes_an_hour,
    )
    keep(f"growth-{arguments.warehouse}", found)
    console.print(growth.sentence(found))
    return not growth.is_level(found)


def _hosts(arguments: argparse.Namespace) -> bool:
    found = hosts.measure(arguments.kills, arguments.windows, seed=arguments.seed, say=console.print)
    keep("hosts", found, add=arguments.add)
    console.print(hosts.sentence(found))
    return not hosts.is_sound(found)


def _fuzz(arguments: argparse.Namespace) -> bool:
    found = fuzz.measure(arguments.cases, seed=arguments.seed, say=console.print, first=arguments.first)
    keep("fuzz", found, add=arguments.add)
    console.print(fuzz.sentence(found))
    return not fuzz.is_sound(found)


def _fuzz_commands(arguments: argparse.Namespace) -> bool:
    found = fuzz_commands.measure(arguments.cases, seed=arguments.seed, say=console.print, first=arguments.first)
    keep("fuzz-commands", found, add=arguments.add)
    console.print(fuzz_commands.sentence(found))
    return not fuzz_commands.is_sound(found)


def _flood(arguments: argparse.Namespace) -> bool:
    found = flood.measure(arguments.addresses, say=console.print)
    keep("flood", found)
    console.print(flood.sentence(found))
    return not flood.is_sound(found)


def _live(arguments: argparse.Namespace) -> bool:
    found = live.measure(
        arguments.minutes, away=(arguments.after, arguments.away), patience_s=arguments.patience_s, say=console.print
    )
    keep("live", found)
    console.print(live.sentence(found))
    return not live.is_sound(found)


def _page(arguments: argparse.Namespace) -> bool:
    console.print(f"Written: {page.write(arguments.out)}")
    return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__)
    commands = parser.add_subparsers(required=True)
    killing = commands.add_parser("kills", help="kill an analysis at random moments, run it again, compare the tables")
    killing.add_argument("--warehouse", choices=tuple(kills.LOCATIONS), default="file")
    killing.add_argument("--runs", type=int, default=200)
    killing.add_argument("--seed", type=int, default=0)
    killing.add_argument("--add", action="store_true", help=ADDED)
    killing.set_defaults(run=_kills)
    growing = commands.add_parser("growth", help="write hours of minutes, expire each hour, and tell the size")
    growing.add_argument("--warehouse", choices=tuple(growth.LOCATIONS), default="file")
    growing.add_argument("--scenario", default="demo")
    growing.add_argument("--hours", type=int, default=24)
    growing.add_argument("--minutes-an-hour", type=int, default=60, help="fewer, to measure a short day")
    growing.add_argument("--flows-h", type=float, default=6)
    growing.add_argument("--timeline-h", type=float, default=6)
    growing.add_argument("--results-h", type=float, default=0, help="0: for ever")
    growing.set_defaults(run=_growth)
    killing_hosts = commands.add_parser("hosts", help="kill a worker of two in backfills, compare the tables")
    killing_hosts.add_argument("--kills", type=int, default=50)
    killing_hosts.add_argument("--windows", type=int, default=6)
    killing_hosts.add_argument("--seed", type=int, default=0)
    killing_hosts.add_argument("--add", action="store_true", help=ADDED)
    killing_hosts.set_defaults(run=_hosts)
    for name, work, cases, what in (
        ("fuzz", _fuzz, 5_000, "land damaged and hostile files, and count what became of them"),
        ("fuzz-commands", _fuzz_commands, 500, "run the command on such files, each in a process of its own"),
    ):
        fuzzing = commands.add_parser(name, help=what)
        fuzzing.add_argument("--cases", type=int, default=cases)
        fuzzing.add_argument("--seed", type=int, default=0)
        fuzzing.add_argument("--first", type=int, default=0, help="number of the first case, to make one again")
        fuzzing.add_argument("--add", action="store_true", help=ADDED)
        fuzzing.set_defaults(run=work)
    flooding = commands.add_parser("flood", help="a minute of addresses that nobody knows: memory, and later windows")
    flooding.add_argument("--addresses", type=int, default=1_000_000)
    flooding.set_defaults(run=_flood)
    feeding = commands.add_parser("live", help="a live feed with late records, and a scheduler that is away")
    feeding.add_argument("--minutes", type=int, default=60)
    feeding.add_argument("--after", type=int, default=4, help="minutes until the scheduler is stopped")
    feeding.add_argument("--away", type=int, default=10, help="minutes until it is started again")
    feeding.add_argument("--patience-s", type=float, default=3600, help="how long it may catch up by itself")
    feeding.set_defaults(run=_live)
    writing = commands.add_parser("page", help="write docs/reliability.md from what was measured")
    writing.add_argument("--out", type=Path, default=PROJECT / "docs" / "reliability.md")
    writing.set_defaults(run=_page)
    return parser


if __name__ == "__main__":
    sys.exit(main())
