"""What each command of `llmprism` does: settings are read, the product is called, the result is shown.

A command imports what it needs when it runs, so that `llmprism --help` is quick.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llmprism_tasks.cli import output, signals
from llmprism_tasks.contract.errors import ContractError, InputError, PermanentError
from llmprism_tasks.contract.visible_text import shown
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import SECRETS, Origin, load_with_origins
from llmprism_tasks.settings.secrets import refuse_in_arguments

if TYPE_CHECKING:
    from llmprism_tasks.contract.windows import Window
    from llmprism_tasks.warehouse.connect import Warehouse


MOST_ROWS = 10_000_000
"""Rows of a query that `llmprism sql` prints; some gigabytes in memory."""

NEWEST_FILES = 10
"""Flow files whose delivery the doctor looks at: the last minutes."""


def _load(arguments: argparse.Namespace) -> tuple[Settings, list[Origin]]:
    """Read the settings at this edge, once: file, environment, --set, and the options that name places."""
    places = {
        f"places.{name}": value
        for name in ("flows", "topology", "warehouse")
        if (value := getattr(arguments, name, None)) is not None
    }
    columns = {f"columns.{field}": column for field, column in getattr(arguments, "columns", {}).items()}
    overrides = dict(arguments.set) | places | columns
    refuse_in_arguments(overrides, SECRETS)
    return load_with_origins(file=arguments.settings, environment=os.environ, overrides=overrides)


def analyze(arguments: argparse.Namespace) -> None:
    """Run every window found in the flows, and say what to do next.

    Raises
    ------
    InputError : there is no flow record
    """
    settings, _ = _load(arguments)
    from llmprism_tasks.execution.partitions.pool import pool_for_files

    with pool_for_files(settings) as pool, output.progress("landing") as show:
        from llmprism_tasks.execution.analyze import analyze  # takes as long as the workers take to get ready
        from llmprism_tasks.validation import data_docs

        def on_window(window: Window, done: int, of: int) -> None:
            signals.end_if_asked()
            if show is not None:
                show(window, done, of)

        windows = analyze(settings, pool=pool, on_window=on_window)
    if not windows:
        raise InputError(
            found=f"no flow record in {settings.places.flows}",
            expected="flow records of at least one window",
            todo="Check places.flows (--flows), and the names of the files there.",
        )
    place = settings.places.warehouse
    if data_docs.folder(settings).is_dir():
        output.say(f"Data Docs of the checks: {data_docs.folder(settings)}")
    output.say(f"Windows done: {len(windows)}. Next: llmprism report --warehouse {shlex.quote(str(place))}")


def report(arguments: argparse.Namespace) -> None:
    """Print the faults that were found, as text or JSON, and save the text as a picture if asked; or write a page.

    Raises
    ------
    InputError : an option would be ignored
    """
    settings, _ = _load(arguments)
    from llmprism_tasks.cli.pages import refuse_ignored_options, write_page

    refuse_ignored_options(arguments)
    if arguments.probes:
        from llmprism_tasks.reports import probes

        tests = shown(probes.probes(_existing_warehouse(arguments)))  # a read copy has no flows
        output.say(json.dumps(tests, indent=2) if arguments.format == "json" else probes.text(tests))
        return
    if arguments.html is not None:
        write_page(_existing_warehouse(arguments), settings, arguments)  # the flows behind an incident are in it
        return
    warehouse = _to_read(arguments)
    from llmprism_tasks.reports import summary, terminal

    found = shown(summary.summarise(warehouse, settings))  # an older warehouse may have names with control characters
    if arguments.format == "json":
        output.say(json.dumps(found, indent=2, ensure_ascii=False, default=str))
    else:
        console = output.terminal()
        if not console.is_terminal:
            console.width = terminal.WIDTH
        console.print(terminal.render(found))
        if arguments.evidence:
            sys.stdout.write(f"\n{terminal.proofs(found)}\n")
    if arguments.picture is not None:
        from llmprism_tasks.reports import picture

        picture.save_svg(terminal.render(found), arguments.picture)


def timeline(arguments: argparse.Namespace) -> None:
    """Write what a job's NICs did over some steps to a file."""
    warehouse = _existing_warehouse(arguments)
    from llmprism_tasks.contract.windows import Window
    from llmprism_tasks.reports.timeline import files

    start_ns, end_ns = (
        None if moment is None else Window.starting(moment, 1).start_ns for moment in (arguments.since, arguments.until)
    )
    lanes = files.lanes_to_show(warehouse, arguments.job, start_ns=start_ns, end_ns=end_ns, addrs=arguments.nics)
    out = arguments.out or Path(arguments.job + files.ENDINGS[arguments.format])
    files.write(lanes, arguments.format, out)
    counts = f"{lanes.slices.height:,} slices of {lanes.nics.height:,} NICs in {lanes.steps['step'].n_unique():,} steps"
    reader = {"perfetto": "https://ui.perfetto.dev", "kineto": "HTA", "csv": "a spreadsheet", "svg": "a browser"}
    output.say(f"Written to {out}: {counts}. Open it with {reader[arguments.format]}.")


def serve(arguments: argparse.Namespace) -> None:
    """Show the pages in a browser on this machine."""
    from llmprism_tasks.cli import pages

    settings, _ = _load(arguments)
    pages.serve(_existing_warehouse(arguments), settings, arguments)


def mute(arguments: argparse.Namespace) -> None:
    """Send no message about an incident for a while."""
    from llmprism_tasks.cli import pages

    pages.mute(_existing_warehouse(arguments), arguments)


def unmute(arguments: argparse.Namespace) -> None:
    """Send messages about an incident again."""
    from llmprism_tasks.cli import pages

    pages.unmute(_existing_warehouse(arguments), arguments)


def due(arguments: argparse.Namespace) -> None:
    """List the windows that are due to be run (again), or run them, newest first.

    Raises
    ------
    ContractError : windows that were run failed
    SettingsError : the warehouse holds windows of another length
    """
    settings, _ = _load(arguments)
    warehouse = _existing_warehouse(arguments)
    from llmprism_tasks.contract.windows import Window
    from llmprism_tasks.reports import minute_states
    from llmprism_tasks.warehouse.landing.landing import landed_before

    landed_before(warehouse, settings.window.length_ns)  # windows of another length would all seem to be due
    if arguments.run:
        _run_due(settings)
    now_ns = time.time_ns()
    found = minute_states.read_states(warehouse, settings, now_ns=now_ns)
    covered = minute_states.coverage(found, settings, now_ns=now_ns)
    columns = ("window_start_ns", "reason", "since_ns", "tries")
    rows = [
        (str(Window(start_ns, 1)), minute_states.WORDS.get(reason, reason), str(Window(since_ns, 1)), tries)
        for start_ns, reason, since_ns, tries in minute_states.due(found).select(columns).iter_rows()
    ]
    if arguments.format == "json":
        listed = [dict(zip(("window", "why", "since", "tries"), row, strict=True)) for row in rows]
        output.say(json.dumps(dataclasses.asdict(covered) | {"windows": listed}, indent=2, ensure_ascii=False))
        return
    if rows:
        output.print_rows(("window", "due because", "since", "tries"), rows)
    output.say(minute_states.sentence(covered) if rows else f"Nothing is due. {minute_states.sentence(covered)}")
    if covered.unseen:
        output.say(minute_states.NOT_LOOKED_FOR)


def _run_due(settings: Settings) -> None:
    from llmprism_tasks.execution.analyze import run_due

    done, failed = run_due(settings)
    output.say(f"Windows done: {len(done)}.")
    if failed:
        raise ContractError(
            found=f"{len(failed)} due windows failed, the first with: {failed[0].found}",
            expected=failed[0].expected,
            todo=f"{failed[0].todo} Then run the same command again.",
        )


def evaluate(arguments: argparse.Namespace) -> None:
    """Compare a warehouse with the truth about its run, and print the scores."""
    warehouse = _existing_warehouse(arguments)
    from llmprism_tasks.reports import evaluation
    from llmprism_tasks.reports.evaluation import score_tables
    from llmprism_tasks.sources.truth import read_truth
    from llmprism_tasks.warehouse import store

    truth = read_truth(arguments.truth)
    tables = {table: store.query(warehouse, f"SELECT * FROM {table}") for table in evaluation.TABLES}
    found = evaluation.all_figures(evaluation.evaluate(tables, truth))
    if arguments.format == "json":
        output.say(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        console = output.terminal()
        console.width = max(console.width, score_tables.WIDTH)  # a narrower table would lose the names
        console.print(score_tables.render(found))


def sql(arguments: argparse.Namespace) -> None:
    """Print the rows of a query as a table, CSV or JSON."""
    warehouse = _to_read(arguments)
    from llmprism_tasks.warehouse import store

    try:
        rows = store.query(warehouse, arguments.query, most=MOST_ROWS)
    except InputError as error:
        settings, _ = _load(arguments)
        if not _read_copy(arguments, settings):
            raise
        raise InputError(
            found=error.found,
            expected=f"{error.expected}, in the read copy {warehouse.location}",
            todo=f"{error.todo} Flows and timeline are only in the warehouse itself: add --live.",
        ) from error
    if arguments.format == "json":
        output.say(rows.write_json())
    elif arguments.format == "csv":
        output.write_csv(rows)
    else:
        output.print_rows(rows.columns, rows.rows())


def forget(arguments: argparse.Namespace) -> None:
    """Take the records of files that are gone away, and say which windows are due for that.

    Raises
    ------
    InputError : a file is there, or nothing is known of it, or its records cannot be told from those of another
    """
    warehouse = _existing_warehouse(arguments)
    from llmprism_tasks.warehouse.landing import gone_files

    starts = gone_files.forget(warehouse, arguments.file, now_ns=time.time_ns())
    output.say(f"Forgotten. Windows that were landed from it: {len(starts)}. They are due: llmprism due --run")


def expire(arguments: argparse.Namespace) -> None:
    """Delete what was kept long enough, and print the rows and bytes that it gave back, by table."""
    _existing_warehouse(arguments)
    settings, _ = _load(arguments)
    from llmprism_tasks.execution import upkeep

    found = upkeep.expire(settings, dry_run=arguments.dry_run)
    due = {table: rows for table, rows in found.rows.items() if rows.due}
    if due:
        output.print_rows(
            ("table", "rows", "of", "about bytes"),
            [(table, f"{rows.due:,}", f"{rows.all:,}", f"{found.table_bytes[table]:,}") for table, rows in due.items()],
        )
    output.say(upkeep.sentence(found, dry_run=arguments.dry_run))


def doctor(arguments: argparse.Namespace) -> None:
    """Print what all checks find, a line each, with what to do.

    Raises
    ------
    PermanentError : there are problems, not only warnings
    """
    settings, _ = _load(arguments)
    from llmprism_tasks.reports.doctor import examination, finding
    from llmprism_tasks.sources import flows, topology

    found: list[finding.Finding] = []
    nics, delays_s = [], []
    try:
        nics = topology.read_topology(settings.places.topology)["addr"].to_list()
    except InputError as error:
        found.append(finding.judged("topology", error.found, problem=error.todo))
    try:
        newest = flows.find(settings.places.flows, length_ns=settings.window.length_ns)[-NEWEST_FILES:]
        delays_s = [Path(file.path).stat().st_mtime - file.span.end_ns / 1e9 for file in newest if file.span]
    except InputError as error:
        found.append(finding.judged("flows", error.found, problem=error.todo))
    found += examination.examine(settings, os.environ, nics=nics, delays_s=delays_s)
    if arguments.format == "json":
        sys.stdout.write(json.dumps([vars(one) for one in found], indent=2, ensure_ascii=False) + "\n")
    else:
        for one in found:
            output.say(f"{one.state:<8} {one.check}: {one.found}" + (f"\n{'':<8} {one.todo}" if one.todo else ""))
    problems = sum(one.state == finding.PROBLEM for one in found)
    if problems:
        raise PermanentError(
            found=f"{problems} problem{'s'[: problems > 1]}", expected="none", todo="What to do is said beside each."
        )


def settings(arguments: argparse.Namespace) -> None:
    """Print every setting with its value and origin, or only whether all are valid.

    Raises
    ------
    InputError : the pattern of flows, which is checked with them, has no time
    """
    loaded, origins = _load(arguments)
    if arguments.check:
        from llmprism_tasks.sources.pattern import Pattern

        if Pattern.is_one(loaded.places.flows):
            Pattern.parse(loaded.places.flows)
        output.say(f"All {len(origins)} settings are right.")
    elif arguments.format == "json":
        output.say(json.dumps([vars(origin) for origin in origins], indent=2, ensure_ascii=False))
    else:
        output.print_rows(
            ("setting", "value", "unit", "source", "reason"),
            [(f"{one.section}.{one.name}", one.value, one.unit, one.source, one.reason) for one in origins],
        )


def simulate(arguments: argparse.Namespace) -> None:
    """Write the flows, the topology and the truth of a scenario to a folder."""
    from llmprism_tasks import simulate
    from llmprism_tasks.contract.windows import Window

    with output.progress("simulating"):
        written = simulate.write_scenario(
            arguments.out,
            scenario=arguments.scenario,
            minutes=arguments.minutes,
            seed=arguments.seed,
            start_ns=Window.starting(arguments.start, 1).start_ns,
        )
    counts = ", ".join(f"{count} {what}" for what, count in written.items())
    places = f"--flows {arguments.out / 'flows'} --topology {arguments.out / 'topology.csv'}"
    output.say(f"Written to {arguments.out}: {counts}. Next: llmprism analyze {places}")


def _read_copy(arguments: argparse.Namespace, settings: Settings) -> str:
    """Return the read copy that is to be read; empty if the warehouse itself is."""
    return "" if arguments.live or arguments.warehouse else settings.places.read_copy


def _to_read(arguments: argparse.Namespace) -> Warehouse:
    """Open the read copy, if the settings name one and the arguments no warehouse; else the warehouse itself."""
    settings, _ = _load(arguments)
    copy = _read_copy(arguments, settings)
    if not copy:
        return _existing_warehouse(arguments)
    from llmprism_tasks.warehouse.upkeep.read_copy import open_copy

    return open_copy(Path(copy), lock_wait_s=settings.warehouse.lock_wait_s)


def _existing_warehouse(arguments: argparse.Namespace) -> Warehouse:
    """Open the warehouse of the settings to look at."""
    settings, _ = _load(arguments)
    from llmprism_tasks.warehouse.connect import configured, existing_warehouse

    return existing_warehouse(configured(settings))
