"""The arguments of each command of `llmprism`."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from llmprism_tasks import __version__
from llmprism_tasks.cli import commands
from llmprism_tasks.cli.output import print_rows
from llmprism_tasks.settings import ColumnSettings

SIMULATION_START = "2026-01-01T00:00:00Z"
"""Default start of simulated time: fixed, so that the same seed gives the same files."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="llmprism", description="Diagnose LLM training from network flow records.")
    top.add_argument("--version", action="version", version=f"llmprism {__version__}")
    common = _common_options()
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        _add_analyze,
        _add_report,
        _add_timeline,
        _add_due,
        _add_serve,
        _add_mute,
        _add_unmute,
        _add_evaluate,
        _add_sql,
        _add_forget,
        _add_expire,
        _add_doctor,
        _add_settings,
        _add_simulate,
    ):
        add(subparsers, common)
    return top


def _common_options() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--settings", metavar="FILE", type=Path, help="TOML file with one table per section")
    common.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        type=_assignment,
        action="append",
        default=[],
        help="one setting; `llmprism settings` lists them",
    )
    common.add_argument("-v", "--verbose", action="store_true", help="tell what is being done")
    return common


Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_analyze(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    analyze = subparsers.add_parser("analyze", parents=[common], help="run every window found in a set of flows")
    analyze.add_argument("--flows", metavar="PATH", help="a file, a folder or a pattern of flow records")
    analyze.add_argument("--topology", metavar="FILE", help="the NIC table, CSV or Parquet")
    analyze.add_argument(
        "--columns",
        metavar="FIELD=COLUMN,…",
        type=_columns,
        default={},
        help="what your files call the fields, as in flow_start_ns=first_seen:ms,bytes=octets; units: ns, us, ms, s",
    )
    analyze.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    analyze.set_defaults(command=commands.analyze)


def _add_report(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    report = subparsers.add_parser("report", parents=[common], help="show what was found")
    report.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    report.add_argument("--live", action="store_true", help="read the warehouse itself, even if there is a read copy")
    report.add_argument("--format", choices=("text", "json"), default="text")
    report.add_argument("--evidence", action="store_true", help="also the queries that return their flows")
    report.add_argument(
        "--probes", action="store_true", help="only the bandwidth tests that tell apart what flows do not"
    )
    report.add_argument("--picture", type=Path, metavar="FILE", help="save what the text shows as an SVG file, too")
    report.add_argument(
        "--html", type=Path, metavar="FILE", help="write one page that needs no server, to attach to a ticket"
    )
    what = report.add_mutually_exclusive_group()
    what.add_argument("--incident", metavar="ID", help="with --html: the page of an incident")
    what.add_argument("--job", metavar="ID", help="with --html: the page of a job")
    report.add_argument(
        "--last", metavar="RANGE", help="with --html: 15m, 1h, 6h, 24h, 7d or 30d before the newest window"
    )
    report.add_argument("--from", dest="from_", metavar="TIME", help="with --html: from this time on, UTC")
    report.add_argument("--to", metavar="TIME", help="with --html: until this time, UTC")
    report.set_defaults(command=commands.report)


def _add_timeline(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    timeline = subparsers.add_parser("timeline", parents=[common], help="write what a job's NICs did, step by step")
    timeline.add_argument("--job", metavar="JOB", required=True, help="its job_id")
    timeline.add_argument("--from", dest="since", metavar="TIME", type=_moment, help="default: the last five steps")
    timeline.add_argument("--to", dest="until", metavar="TIME", type=_moment, help="default: the end of the job")
    timeline.add_argument("--nics", metavar="ADDR,…", type=_names, help="default: all of the job")
    timeline.add_argument(
        "--format",
        choices=("perfetto", "kineto", "csv", "svg"),
        default="perfetto",
        help="default: perfetto; kineto is a folder with a file for each NIC, as HTA reads them",
    )
    timeline.add_argument("--out", metavar="FILE", type=Path, help="default: named for the job, in this folder")
    timeline.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    timeline.set_defaults(command=commands.timeline)


def _add_serve(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    serve = subparsers.add_parser("serve", parents=[common], help="show the pages in a browser on this machine")
    serve.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    serve.add_argument("--port", metavar="N", type=int, default=8090, help="default: 8090; 0 for any that is free")
    serve.set_defaults(command=commands.serve)


def _add_mute(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    mute = subparsers.add_parser("mute", parents=[common], help="send no message about an incident for a while")
    mute.add_argument("incident", metavar="INCIDENT", help="its id, such as incident-0123456789ab")
    mute.add_argument("--until", metavar="TIME", required=True, help="a time in ISO 8601, or 90m, 4h or 2d from now")
    mute.add_argument("--reason", metavar="TEXT", required=True, help="why, for whoever looks next")
    mute.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    mute.set_defaults(command=commands.mute)


def _add_unmute(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    unmute = subparsers.add_parser("unmute", parents=[common], help="send messages about an incident again")
    unmute.add_argument("incident", metavar="INCIDENT", help="its id, such as incident-0123456789ab")
    unmute.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    unmute.set_defaults(command=commands.unmute)


def _add_due(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    due = subparsers.add_parser(
        "due", parents=[common], help="list the windows that are due to be run (again), and why"
    )
    due.add_argument("--run", action="store_true", help="run them, newest first")
    due.add_argument("--flows", metavar="PATH", help="a file, a folder or a pattern of flow records")
    due.add_argument("--topology", metavar="FILE", help="the NIC table, CSV or Parquet")
    due.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    due.add_argument("--format", choices=("text", "json"), default="text")
    due.set_defaults(command=commands.due)


def _add_evaluate(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    evaluate = subparsers.add_parser("evaluate", parents=[common], help="say how right it is, where the truth is known")
    evaluate.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    evaluate.add_argument("--truth", metavar="FOLDER", required=True, help="such as `llmprism simulate` writes")
    evaluate.add_argument("--format", choices=("text", "json"), default="text")
    evaluate.set_defaults(command=commands.evaluate)


def _add_sql(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    sql = subparsers.add_parser("sql", parents=[common], help="query the warehouse, waiting for its turn")
    sql.add_argument("query", metavar="QUERY")
    sql.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    sql.add_argument("--live", action="store_true", help="read the warehouse itself, even if there is a read copy")
    sql.add_argument("--format", choices=("table", "csv", "json"), default="table")
    sql.set_defaults(command=commands.sql)


def _add_forget(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    forget = subparsers.add_parser(
        "forget", parents=[common], help="take away what was landed from a wrong file, once the file is removed"
    )
    forget.add_argument(
        "--file",
        metavar="FILE",
        action="append",
        required=True,
        help="as flow_files has it; may be given several times",
    )
    forget.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    forget.set_defaults(command=commands.forget)


def _add_expire(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    expire = subparsers.add_parser(
        "expire", parents=[common], help="delete what was kept long enough (retention in the settings)"
    )
    expire.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    expire.add_argument("--dry-run", action="store_true", help="say what would be deleted, and delete nothing")
    expire.set_defaults(command=commands.expire)


def _add_doctor(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    doctor = subparsers.add_parser(
        "doctor", parents=[common], help="check this machine, the settings and the warehouse"
    )
    doctor.add_argument("--flows", metavar="PATH", help="a file, a folder or a pattern of flow records")
    doctor.add_argument("--topology", metavar="FILE", help="the NIC table, CSV or Parquet")
    doctor.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    doctor.add_argument("--format", choices=("text", "json"), default="text")
    doctor.set_defaults(command=commands.doctor)


def _add_settings(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    settings = subparsers.add_parser("settings", parents=[common], help="show what would run, and where it comes from")
    settings.add_argument("--check", action="store_true", help="say only whether they are right")
    settings.add_argument("--format", choices=("table", "json"), default="table")
    settings.set_defaults(command=commands.settings)


def _add_simulate(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    simulate = subparsers.add_parser("simulate", parents=[common], help="write flows, topology and the truth")
    simulate.add_argument("--out", metavar="DIR", type=Path, required=True)
    simulate.add_argument("--scenario", metavar="NAME|FILE", default="demo", help="default: demo")
    simulate.add_argument("--minutes", metavar="N", type=int, default=10, help="default: 10")
    simulate.add_argument("--seed", metavar="N", type=int, default=0, help="default: 0")
    simulate.add_argument(
        "--start", metavar="TIME", type=_moment, default=SIMULATION_START, help=f"ISO 8601; default: {SIMULATION_START}"
    )
    simulate.add_argument("--keys", nargs=0, action=_Keys, help="say what a scenario's tables may hold, and exit")
    simulate.set_defaults(command=commands.simulate)


class _Keys(argparse.Action):
    """Prints every key of a scenario's tables with its default, unit, range and reason."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from llmprism_tasks.simulate import Scenario

        rows = [
            (f"{name}.{one.name}", one.default, one.metadata["unit"], _range(one.metadata), one.metadata["reason"])
            for name, part in typing.get_type_hints(Scenario).items()
            for kind in (*typing.get_args(part), part)
            if dataclasses.is_dataclass(kind)
            for one in dataclasses.fields(kind)
        ]
        print_rows(("key", "default", "unit", "range", "reason"), rows)
        parser.exit()


def _range(limits: Mapping[str, Any]) -> str:
    if "low" in limits:
        return f"{limits['low']:g} to {limits['high']:g}"
    return ", ".join(limits.get("choices") or ())


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or "." not in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form section.name=value")
    return name, value


def _columns(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if wrong := [field for field, equals, column in pairs if not field or not equals or not column]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not of the form field=column")
    named = {field.strip(): column.strip() for field, _, column in pairs}
    known = [field.name for field in dataclasses.fields(ColumnSettings)]
    if unknown := sorted(set(named) - set(known)):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no field of a flow, which are {', '.join(known)}")
    return named


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _moment(text: str) -> dt.datetime:
    """Read a moment; one without a time zone is UTC."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as {SIMULATION_START}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
