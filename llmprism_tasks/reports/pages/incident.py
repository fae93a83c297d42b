"""Incident: what, who, since when, what it costs, what proves it, who else it could be, and what to check next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.fault_catalogue import NETWORK, work_of
from llmprism_tasks.reports.pages import charts, now, timeline
from llmprism_tasks.reports.pages.charts import Chart
from llmprism_tasks.reports.pages.markup import data, iso, render, shown
from llmprism_tasks.reports.pages.ranges import LASTS, LONGEST_S, Range, asked_range, listed
from llmprism_tasks.warehouse.asking import asking
from llmprism_tasks.warehouse.connect import Warehouse

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]

MOST_ROWS, MOST_FLOWS = 60, 100
AROUND, REACH = 2, 8
"""Windows before an incident and after it that are plotted too, for what was normal has to be in the plot; and the
windows before and after its worst one beyond which nothing is plotted."""

MOST_STEPS_OF_NICS = 200_000
"""Rows of `step_breakdown` that a plot may need; of a large job fewer windows are plotted."""

SLICES_OF_WINDOW = 4
LARGE_BYTES = 1_000_000
"""Bytes from which on a record's length tells the pace of its path rather than its latency; as for latent devices."""


def show(warehouse: Warehouse, query: Mapping[str, str], *, now_ns: int, alone: bool = False) -> str:
    """Return the page of an incident.

    Raises
    ------
    InputError : there is no such incident
    QueryTooLong, WarehouseBusy : as `asking`
    """
    incident_id = query.get("id", "")
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        asked = asked_range(ask, {})
        found = ask("incidents", from_ns=0, to_ns=0, now_ns=now_ns, incident_id=incident_id, job_id=None, most=1)
        if found.is_empty():
            raise InputError(
                found=f"no incident {shown(incident_id)}",
                expected="an incident of the warehouse; windows that were run again may have changed its id",
                todo="Choose it from the first page, over a range that holds it, or from llmprism report.",
            )
        incident = found.row(0, named=True)
        worst = incident["worst_window_start_ns"]
        first = max(incident["first_window_start_ns"], worst - 30 * asked.window_ns)
        job = ask("jobs", from_ns=worst, to_ns=worst + asked.window_ns, job_id=incident["job_id"], most=1)
        near = around(incident, job, asked.window_ns)
        frames: Frames = {
            "incident": found,
            "diagnoses": ask(
                "diagnoses", first_ns=first, last_ns=incident["last_window_start_ns"], jobs=incident["jobs"],
                most=20 * MOST_ROWS,
            ),
            "members": ask(
                "members", window_start_ns=worst, job_id=incident["job_id"], most=timeline.MOST_MEMBERS
            ),
            "splits": ask("member_splits", **listed(near), job_id=incident["job_id"], most=250_000),
        }  # fmt: skip
        flows = ask.has("flows")
        if flows and incident["subject_type"] in ("switch", "link"):
            frames["paces"] = ask(
                "paces_beside", **timeline.ends(incident["subject"]), job_id=incident["job_id"], window_start_ns=worst,
                first_ns=near[0], last_ns=near[-1], least_bytes=LARGE_BYTES,
                slice_ns=asked.window_ns // SLICES_OF_WINDOW,
                most=1_000,
            )  # fmt: skip
        if flows and incident["evidence_sql"]:
            frames["flows"] = ask.of_text(incident["evidence_sql"], since_ns=incident["start_ns"], most=MOST_FLOWS)
    return page(frames, asked, now_ns=now_ns, took_s=ask.took_s, alone=alone)


def around(incident: Row, job: pl.DataFrame, window_ns: int) -> list[int]:
    """Return the starts of the windows that are plotted: around the worst one, and a bit beyond the incident."""
    one = job.row(0, named=True) if job.height else {}
    steps = window_ns / (one.get("period_ns") or window_ns) * (one.get("endpoints") or 1)
    reach = min(REACH, max(AROUND, int(MOST_STEPS_OF_NICS / steps / 2)))
    first, last, worst = (incident[f"{name}_window_start_ns"] for name in ("first", "last", "worst"))
    start = max(first - AROUND * window_ns, worst - reach * window_ns)
    end = min(last + AROUND * window_ns, worst + reach * window_ns)
    return list(range(start, end + 1, window_ns))


def page(frames: Frames, asked: Range, *, now_ns: int, took_s: Mapping[str, float], alone: bool = False) -> str:
    """Return the page as HTML; the frames are rows of the queries of these names in `sql/pages`."""
    row = frames["incident"].row(0, named=True)
    incident = now.folded(frames["incident"], asked)[0] | {"tenant": row["tenant"]}
    own, others = proofs(frames["diagnoses"], row)
    drawn = beside_other_paths(frames["paces"], row) if "paces" in frames else beside_peers(frames, row)
    return render(
        "incident.html",
        scripts=["plotly.min.js", "charts.js"] if drawn else [],
        title=f"{row['kind'].replace('_', ' ')}: {shown(row['subject'])}",
        here="incident",
        asked=asked,
        lasts=LASTS,
        now_ns=now_ns,
        took_s=took_s,
        alone=alone,
        fresh=incident["state"] == "open",
        incident=incident,
        own=own[:MOST_ROWS],
        others=others[:MOST_ROWS],
        peers=next((one["peers"] for one in reversed(own) if one["peers"]), None),
        chart=None if drawn is None else {"name": "peers", **drawn._asdict(), "json": data(drawn.figure)},
        candidates=list(zip(row["candidates"] or (), row["odds"] or (), strict=True)),
        flows=flow_table(frames["flows"]) if "flows" in frames else None,
        most_flows=MOST_FLOWS,
    )


def flow_table(flows: pl.DataFrame) -> Row:
    """Return flows as a reader takes them in: times of day, paths with arrows, the subject's own first.

    Returns
    -------
    `columns`, and `rows` of whether a flow is of the subject, and its values; `same`, the columns that have one value
    in all rows, with this value
    """
    told = [name for name in flows.columns if name not in {"of_subject", "window_start_ns"}]
    alike = [name for name in told if flows.height > 1 and flows[name].n_unique() == 1]
    shows = [name for name in told if name not in alike]
    rows = [
        (bool(row.get("of_subject")), [_readable(name, row[name]) for name in shows])
        for row in flows.iter_rows(named=True)
    ]
    return {
        "columns": [name.removesuffix("_ns") for name in shows],
        "rows": sorted(rows, key=lambda row: not row[0]),
        "same": [(name.removesuffix("_ns"), _readable(name, flows[name][0])) for name in alike],
    }


def _readable(name: str, value: Any) -> Any:
    if value is not None and name.endswith("_ns"):
        return iso(value)[11:]
    return " → ".join(map(str, value)) if isinstance(value, list) else value


def proofs(diagnoses: pl.DataFrame, incident: Row) -> tuple[list[Row], list[Row]]:
    """Divide the diagnoses of an incident's time: those of its subject, the newest first, and those of others.

    The others are what cannot be told apart from it, and what is its effect; those of the worst window come first.
    """
    rows = diagnoses.sort("window_start_ns", descending=True, maintain_order=True).to_dicts()
    own = [one for one in rows if one["subject"] == incident["subject"] and one["kind"] in incident["kinds"]]
    worst = incident["worst_window_start_ns"]
    rest = [one for one in rows if one not in own and one["window_start_ns"] == worst]
    return own, rest


def beside_other_paths(paces: pl.DataFrame, incident: Row) -> Chart | None:
    """Return how fast records cross a switch or link, beside those that avoid it; None if no large one crosses it."""
    if not paces["crosses"].any():
        return None
    name = shown(incident["subject"], 40)
    sides = ((True, f"through {name}", "--culprit"), (False, "elsewhere", "--line"))
    parts = [(word, colour, paces.filter(pl.col("crosses") == side)) for side, word, colour in sides]
    return Chart(
        f"The traffic through {name} beside the rest of its job",
        "Median rate of the records of a megabyte and more in each quarter of a window, from before the "
        "incident until after it.",
        charts.lines(
            [(word, colour, rows["slice_ns"].to_list(), rows["gbit_s"].to_list()) for word, colour, rows in parts],
            unit="Gbit/s per record",
            markers=True,
            hover=".1f",
        ),
        height=300,
    )


def beside_peers(frames: Frames, incident: Row) -> Chart | None:
    """Return the steps of the incident's members beside those of their peers; None where no member is named."""
    members, splits = frames["members"], frames["splits"]
    accused = set(_members_of(incident, members))
    if not accused or splits.is_empty():
        return None
    network = work_of(incident["kind"]) == NETWORK  # then members are compared by the time they communicate
    part, word = ("communication_ns", "communicate") if network else ("compute_ns", "compute")
    of_peers, whose = _peers_of(accused, members, splits)
    if of_peers.is_empty():
        return None
    by_step = ["end_ns", "window_start_ns", "step_index"]
    middle = (
        of_peers.group_by(by_step)
        .agg(median=pl.col(part).median() / 1e9, low=pl.col(part).min() / 1e9, high=pl.col(part).max() / 1e9)
        .sort("end_ns")
    )
    own = (
        splits.filter(pl.col("addr").is_in(list(accused)))
        .group_by(by_step)
        .agg(median=pl.col(part).median() / 1e9)
        .sort("end_ns")
    )
    name = shown(incident["subject"], 40)
    series = [
        ("its peers: longest", "--muted-line", middle["end_ns"].to_list(), middle["high"].to_list()),
        ("its peers: median", "--line", middle["end_ns"].to_list(), middle["median"].to_list()),
        ("its peers: shortest", "--muted-line", middle["end_ns"].to_list(), middle["low"].to_list()),
        (name, "--culprit", own["end_ns"].to_list(), own["median"].to_list()),
    ]
    count = of_peers["addr"].n_unique()
    return Chart(
        f"{name} beside its peers",
        f"How long {name} {word}s in each step, beside {count:,} {'NIC' if count == 1 else 'NICs'} {whose}, "
        "from before the incident until after it.",
        charts.lines(series, unit="s per step", markers=True),
        height=300,
    )


def _peers_of(accused: set[str], members: pl.DataFrame, splits: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Return the steps of NICs that work like the accused, and what these NICs are.

    They are the others of the same pipeline stages. Where a stage is not known, or nobody else is in it, they are all
    others of the job.
    """
    others = splits.filter(~pl.col("addr").is_in(list(accused)))
    stages = members.filter(pl.col("addr").is_in(list(accused)))["pp_stage"]
    same = others.filter(pl.col("pp_stage").is_in(stages.unique().drop_nulls().to_list()))
    if stages.has_nulls() or same.is_empty():
        return others, "elsewhere in the job, whatever their pipeline stage"
    return same, "of the same pipeline stage"


def _members_of(incident: Row, members: pl.DataFrame) -> list[str]:
    column = {"addr": "addr", "host": "host", "pp_stage": "pp_stage", "dp_group": "dp_group"}.get(
        incident["subject_type"]
    )
    return (
        []
        if column is None
        else members.filter(pl.col(column).cast(pl.String) == incident["subject"])["addr"].to_list()
    )
