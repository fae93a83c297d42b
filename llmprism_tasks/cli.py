"""The command `llmprism`: arguments in, pipeline or report called, exit code out.

Exit codes: 0 done, 1 trying again cannot help, 2 wrong usage, 75 trying again later may help, 130 interrupted, 143
asked to end (SIGTERM). The last two leave neither a process nor temporary files behind.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import datetime as dt
import json
import logging
import os
import signal
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from llmprism_tasks import __version__
from llmprism_tasks.contract.errors import InputError, LlmprismError, TransientError
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import Origin, load_with_origins

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from llmprism_tasks.contract.windows import Window
    from llmprism_tasks.warehouse.connect import Warehouse

PERMANENT, TRY_LATER, INTERRUPTED, TERMINATED = 1, os.EX_TEMPFAIL, 128 + signal.SIGINT, 128 + signal.SIGTERM

SIMULATION_START = "2026-01-01T00:00:00Z"
"""Where simulated time starts unless told: fixed, so that the same seed gives the same files."""


class Terminated(KeyboardInterrupt):
    """Somebody asked this process to end, as systemd and Kubernetes do."""


def run() -> NoReturn:
    """Run this process's command line, and end the process."""
    signal.signal(signal.SIGTERM, _terminate)  # here alone: whoever imports this may have a handler of its own
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin for half a second of processor time, unused
    sys.exit(main())


def _terminate(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two, and what is tidied up is not to be disturbed
    raise Terminated


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code, after saying on standard error what went wrong."""
    try:
        arguments = _parser().parse_args(argv)
        command: Callable[[argparse.Namespace], None] = arguments.command
        with _logging_to_stderr(verbose=arguments.verbose):
            command(arguments)
        sys.stdout.flush()  # here, where a reader that has gone is noticed
    except LlmprismError as error:
        _tell(f"llmprism: {error}", stderr=True)
        return TRY_LATER if isinstance(error, TransientError) else PERMANENT
    except (KeyboardInterrupt, RuntimeError, ImportError) as error:  # DuckDB, at work or imported, raises one from it
        why = error if isinstance(error, KeyboardInterrupt) else error.__cause__
        if not isinstance(why, KeyboardInterrupt):
            raise
        asked = isinstance(why, Terminated)
        _tell(
            f"llmprism: {'asked to end' if asked else 'interrupted'}. What was written so far is whole; "
            "the same command takes it to its end.",
            stderr=True,
        )
        return TERMINATED if asked else INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llmprism", description="Diagnose LLM training from network flow records.")
    parser.add_argument("--version", action="version", version=f"llmprism {__version__}")
    common = _common_options()
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_analyze, _add_report, _add_evaluate, _add_sql, _add_settings, _add_simulate):
        add(commands, common)
    return parser


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


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_analyze(commands: Commands, common: argparse.ArgumentParser) -> None:
    analyze = commands.add_parser("analyze", parents=[common], help="run every window found in a set of flows")
    analyze.add_argument("--flows", metavar="PATH", help="a file, a folder or a pattern of flow records")
    analyze.add_argument("--topology", metavar="FILE", help="the NIC table, CSV or Parquet")
    analyze.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    analyze.set_defaults(command=_analyze)


def _add_report(commands: Commands, common: argparse.ArgumentParser) -> None:
    report = commands.add_parser("report", parents=[common], help="show what was found")
    report.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    report.add_argument("--format", choices=("text", "json"), default="text")
    report.add_argument("--evidence", action="store_true", help="also the queries that return their flows")
    report.add_argument("--picture", type=Path, metavar="FILE", help="save what the text shows as an SVG file, too")
    report.set_defaults(command=_report)


def _add_evaluate(commands: Commands, common: argparse.ArgumentParser) -> None:
    evaluate = commands.add_parser("evaluate", parents=[common], help="say how right it is, where the truth is known")
    evaluate.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    evaluate.add_argument("--truth", metavar="FOLDER", required=True, help="such as `llmprism simulate` writes")
    evaluate.add_argument("--format", choices=("text", "json"), default="text")
    evaluate.set_defaults(command=_evaluate)


def _add_sql(commands: Commands, common: argparse.ArgumentParser) -> None:
    sql = commands.add_parser("sql", parents=[common], help="query the warehouse, waiting for its turn")
    sql.add_argument("query", metavar="QUERY")
    sql.add_argument("--warehouse", metavar="FILE", help="a DuckDB file, or a DuckLake as ducklake:…")
    sql.add_argument("--format", choices=("table", "csv", "json"), default="table")
    sql.set_defaults(command=_sql)


def _add_settings(commands: Commands, common: argparse.ArgumentParser) -> None:
    settings = commands.add_parser("settings", parents=[common], help="show what would run, and where it comes from")
    settings.add_argument("--check", action="store_true", help="say only whether they are right")
    settings.add_argument("--format", choices=("table", "json"), default="table")
    settings.set_defaults(command=_settings)


def _add_simulate(commands: Commands, common: argparse.ArgumentParser) -> None:
    simulate = commands.add_parser("simulate", parents=[common], help="write flows, topology and the truth")
    simulate.add_argument("--out", metavar="DIR", type=Path, required=True)
    simulate.add_argument("--scenario", metavar="NAME|FILE", default="demo", help="default: demo")
    simulate.add_argument("--minutes", metavar="N", type=int, default=10, help="default: 10")
    simulate.add_argument("--seed", metavar="N", type=int, default=0, help="default: 0")
    simulate.add_argument(
        "--start", metavar="TIME", type=_moment, default=SIMULATION_START, help=f"ISO 8601; default: {SIMULATION_START}"
    )
    simulate.add_argument("--keys", nargs=0, action=_Keys, help="say what a scenario's tables may hold, and exit")
    simulate.set_defaults(command=_simulate)


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
        _print_rows(("key", "default", "unit", "range", "reason"), rows)
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


def _moment(text: str) -> dt.datetime:
    """Read a moment; one without a time zone is UTC."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as {SIMULATION_START}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _load(arguments: argparse.Namespace) -> tuple[Settings, list[Origin]]:
    """Read the settings at this edge, once: file, environment, --set, and the options that name places."""
    places = {
        f"places.{name}": value
        for name in ("flows", "topology", "warehouse")
        if (value := getattr(arguments, name, None)) is not None
    }
    overrides = dict(arguments.set) | places
    return load_with_origins(file=arguments.settings, environment=os.environ, overrides=overrides)


def _analyze(arguments: argparse.Namespace) -> None:
    settings, _ = _load(arguments)
    from llmprism_tasks.execution.pool import pool_for_files

    with pool_for_files(settings) as pool, _progress("landing") as on_window:
        if pool is not None:  # whose workers have the other processors; Polars reads this when it is imported
            os.environ.setdefault("POLARS_MAX_THREADS", "1")
        from llmprism_tasks.execution.analyze import analyze  # takes as long as the workers take to get ready

        windows = analyze(settings, pool=pool, on_window=on_window)
    if not windows:
        raise InputError(
            found=f"no flow record in {settings.places.flows}",
            expected="flow records of at least one window",
            todo="Check places.flows (--flows), and the names of the files there.",
        )
    place = settings.places.warehouse
    _tell(f"Windows done: {len(windows)}. Next: llmprism report --warehouse {place}")


def _report(arguments: argparse.Namespace) -> None:
    warehouse = _existing_warehouse(arguments)
    from llmprism_tasks.reports import summary, terminal

    found = summary.summarise(warehouse)
    if arguments.format == "json":
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False, default=str) + "\n")
    else:
        console = _console()
        if not console.is_terminal:
            console.width = terminal.WIDTH
        console.print(terminal.render(found))
        if arguments.evidence:
            sys.stdout.write(f"\n{terminal.proofs(found)}\n")
    if arguments.picture is not None:
        from llmprism_tasks.reports import picture

        picture.save_svg(terminal.render(found), arguments.picture)


def _evaluate(arguments: argparse.Namespace) -> None:
    warehouse = _existing_warehouse(arguments)
    from llmprism_tasks.reports import evaluation, scores
    from llmprism_tasks.sources.truth import read_truth
    from llmprism_tasks.warehouse import store

    truth = read_truth(arguments.truth)
    tables = {table: store.query(warehouse, f"SELECT * FROM {table}") for table in evaluation.TABLES}
    found = evaluation.all_figures(evaluation.evaluate(tables, truth))
    if arguments.format == "json":
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    else:
        console = _console()
        console.width = max(console.width, scores.WIDTH)  # a narrower table would lose the names
        console.print(scores.render(found))


def _sql(arguments: argparse.Namespace) -> None:
    warehouse = _existing_warehouse(arguments)
    from llmprism_tasks.warehouse import store

    rows = store.query(warehouse, arguments.query)
    if arguments.format == "json":
        sys.stdout.write(rows.write_json() + "\n")
    elif arguments.format == "csv":
        _write_csv(rows)
    else:
        _print_rows(rows.columns, rows.rows())


def _settings(arguments: argparse.Namespace) -> None:
    _, origins = _load(arguments)
    if arguments.check:
        _tell(f"All {len(origins)} settings are right.")
    elif arguments.format == "json":
        sys.stdout.write(json.dumps([vars(origin) for origin in origins], indent=2, ensure_ascii=False) + "\n")
    else:
        _print_rows(
            ("setting", "value", "unit", "source", "reason"),
            [(f"{one.section}.{one.name}", one.value, one.unit, one.source, one.reason) for one in origins],
        )


def _simulate(arguments: argparse.Namespace) -> None:
    from llmprism_tasks import simulate
    from llmprism_tasks.contract.windows import Window

    with _progress("simulating"):
        written = simulate.write_scenario(
            arguments.out,
            scenario=arguments.scenario,
            minutes=arguments.minutes,
            seed=arguments.seed,
            start_ns=Window.starting(arguments.start, 1).start_ns,
        )
    counts = ", ".join(f"{count} {what}" for what, count in written.items())
    places = f"--flows {arguments.out / 'flows'} --topology {arguments.out / 'topology.csv'}"
    _tell(f"Written to {arguments.out}: {counts}. Next: llmprism analyze {places}")


def _existing_warehouse(arguments: argparse.Namespace) -> Warehouse:
    """Open a warehouse to look at: one that is not there is a mistyped name, not one to create."""
    settings, _ = _load(arguments)
    location = settings.places.warehouse
    if not location.startswith("ducklake:") and not Path(location).is_file():
        raise InputError(
            found=f"no warehouse {location}",
            expected="the DuckDB file of an earlier `llmprism analyze`",
            todo="Name it with --warehouse, or run `llmprism analyze` first.",
        )
    from llmprism_tasks.warehouse.connect import open_warehouse

    return open_warehouse(location, lock_wait_s=settings.warehouse.lock_wait_s)


@contextlib.contextmanager
def _progress(first: str) -> Iterator[Callable[[Window, int, int], None] | None]:
    """Show progress while a person watches; gives the function to call with each window, or None."""
    if not (sys.stderr.isatty() or os.environ.get("FORCE_COLOR")):  # Rich knows, and takes a while to import
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as progress:
        task = progress.add_task(first, total=None)
        yield lambda window, done, of: progress.update(task, description=str(window), completed=done, total=of)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def _tell(message: str, *, stderr: bool = False) -> None:
    print(message, file=sys.stderr if stderr else sys.stdout)


def _print_rows(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    """Print rows as a table; on a screen where one does not fit, with a line for each value.

    Where no screen limits it, a table is as wide as it is.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = _console()
    shown = [[Text("" if value is None else str(value)) for value in row] for row in rows]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(Text(column))
    for row in shown:
        table.add_row(*row)
    width = console.measure(table, options=console.options.update(width=100_000)).maximum
    if console.is_terminal and width > console.width:
        for number, row in enumerate(shown, 1):
            grid = Table.grid(padding=(0, 2, 0, 0))
            for column, value in zip(columns, row, strict=True):
                grid.add_row(Text(column, "bold"), value)
            console.rule(f"{number:,} of {len(rows):,}", align="left")
            console.print(grid)
        return
    if not console.is_terminal:
        console.width = width
    console.print(table)


def _write_csv(rows: pl.DataFrame) -> None:
    """Write rows as CSV; lists and structs, for which it has no form, as JSON text."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows.columns)
    for row in rows.iter_rows():
        writer.writerow([json.dumps(one, default=str) if isinstance(one, list | dict) else one for one in row])


@contextlib.contextmanager
def _logging_to_stderr(*, verbose: bool) -> Iterator[None]:
    """Log to standard error, and leave the process's logging as it was."""
    handler, own = logging.StreamHandler(), logging.getLogger("llmprism_tasks")
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    level = own.level
    own.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        own.setLevel(level)
