"""`python -m reliability kills`, `hosts` or `page`: disturb llmprism and compare tables; or write what was measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from reliability import hosts, kills, page
from reliability.results import keep

PROJECT = Path(__file__).resolve().parents[2]

console = Console(highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code: 1 if the tables were not what they should be."""
    arguments = _parser().parse_args(argv)
    return int(arguments.run(arguments))


def _kills(arguments: argparse.Namespace) -> bool:
    found = kills.measure(arguments.warehouse, arguments.runs, seed=arguments.seed, say=console.print)
    keep(f"kills-{arguments.warehouse}", found)
    console.print(kills.sentence(found))
    return not kills.is_sound(found)


def _hosts(arguments: argparse.Namespace) -> bool:
    found = hosts.measure(arguments.kills, arguments.windows, seed=arguments.seed, say=console.print)
    keep("hosts", found)
    console.print(hosts.sentence(found))
    return not hosts.is_sound(found)


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
    killing.set_defaults(run=_kills)
    killing_hosts = commands.add_parser("hosts", help="kill a worker of two in backfills, compare the tables")
    killing_hosts.add_argument("--kills", type=int, default=50)
    killing_hosts.add_argument("--windows", type=int, default=6)
    killing_hosts.add_argument("--seed", type=int, default=0)
    killing_hosts.set_defaults(run=_hosts)
    writing = commands.add_parser("page", help="write docs/reliability.md from what was measured")
    writing.add_argument("--out", type=Path, default=PROJECT / "docs" / "reliability.md")
    writing.set_defaults(run=_page)
    return parser


if __name__ == "__main__":
    sys.exit(main())
