"""What the processes logged -> the truth about a capture, in the tables that tests/golden compares with."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
from cluster import NODES

BULK_RATIO = 0.1
"""A pair belongs to its kinds if it carried at least this share of the bytes of the busiest pair with the same kinds.
Only with the same: what also carries gradients carries many times the tokens of those that exchange just these."""

ENDS = ["src_addr", "dst_addr"]

STEP = {"job": pl.String, "addr": pl.String, "step": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
FAULT = {"kind": pl.String, "job": pl.String, "subject_type": pl.String, "subject": pl.String,
         "start_ns": pl.Int64, "end_ns": pl.Int64, "severity": pl.Float64}  # fmt: skip
EFFECT = {"effect": pl.Float64, "longest": pl.Float64, "noise": pl.Float64}
"""What a fault did to its job's steps; see `effects`."""

PAUSE = {"kind": pl.String, "job": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}

ALIKE = 2.0
"""Times the shortest wait for a checkpoint of its job up to which another one is alike: storage at half its rate."""

AGAIN = "_again"
"""What the name of a job that was launched again ends with; see `setups`."""

MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""

NOISE = {"kind": pl.String, "src": pl.String, "dst": pl.String,
         "start_ns": pl.Int64, "end_ns": pl.Int64, "bytes": pl.Int64}  # fmt: skip
RANK = {"job": pl.String, "addr": pl.String, "rank": pl.Int64, "pp_index": pl.Int64, "dp_index": pl.Int64,
        "tp_index": pl.Int64, "ep_index": pl.Int64, "cp_index": pl.Int64, "dp_group": pl.List(pl.String),
        "pp_group": pl.List(pl.String), "tp_group": pl.List(pl.String), "ep_group": pl.List(pl.String),
        "expert_dp_group": pl.List(pl.String), "cp_group": pl.List(pl.String), "cp_towards": pl.String}  # fmt: skip


def tables(logs: Path, flows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the tables of `truth/`.

    Parameters
    ----------
    logs : the folder that capture.py filled
    flows : the capture's records, which tell how much each pair carried
    """
    events = _events(logs)
    launched = pl.DataFrame(json.loads((logs / "launched.json").read_text()))
    rank_steps = pl.DataFrame(_of(events, "step"), schema=STEP).sort("job", "addr", "step")
    # A step that a crash cut short is nobody's: a job's step is one that all its ranks finished.
    ranks = launched.group_by("job").agg(ranks=pl.len())
    steps = (
        rank_steps.group_by("job", "step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), finished=pl.len())
        .join(ranks, on="job")
        .filter(pl.col("finished") == pl.col("ranks"))
        .select("job", "step", "start_ns", "end_ns")
        .sort("job", "step")
    )
    ends = rank_steps.group_by("job", "addr").agg(pl.col("end_ns").max())
    hosts = pl.DataFrame([{"addr": node.addr, "host": node.host} for node in NODES.values()])
    jobs = (
        launched.join(ends, on=["job", "addr"], how="left")
        .join(hosts, on="addr")
        .select("job", "addr", "host", "start_ns", "end_ns")
    )
    places, faults = _ranks(events), _faults(logs, events)
    pairs, minor = _pairs(flows, places, jobs, steps)
    return {
        "truth_jobs": jobs,
        "truth_pairs": pairs,
        "truth_pairs_minor": minor,
        "truth_steps": steps,
        "truth_rank_steps": rank_steps,
        "truth_ranks": places,
        "truth_faults": effects(_lasting(faults, launched, flows), steps),
        "truth_pauses": pl.concat([_pauses(logs, rank_steps), _saved(logs, faults)]).sort("job", "start_ns"),
        "truth_noise": _noise(logs, events),
    }


def write(truth: dict[str, pl.DataFrame], folder: Path) -> None:
    """Write each table as Parquet, and as CSV those that have no lists."""
    folder.mkdir(exist_ok=True)
    for name, table in truth.items():
        table.write_parquet(folder / f"{name}.parquet", compression="zstd")
        if pl.List(pl.String) not in table.schema.values():
            table.write_csv(folder / f"{name}.csv")


def _events(logs: Path) -> list[dict[str, object]]:
    """Read what all ranks logged, each line with its job."""
    return [
        {"job": job, **json.loads(line)}
        for job in _jobs(logs)
        for file in sorted(logs.glob(f"{job}-*.jsonl"))
        for line in file.read_text().splitlines()
    ]


def _jobs(logs: Path) -> list[str]:
    return sorted(file.stem for file in logs.glob("*.json") if file.stem not in ("faults", "launched"))


def _of(events: list[dict[str, object]], kind: str) -> list[dict[str, object]]:
    return [event for event in events if event["event"] == kind]


def _ranks(events: list[dict[str, object]]) -> pl.DataFrame:
    towards = {(event["job"], event["addr"]): event["towards"] for event in _of(events, "ring")}
    rows = [
        {**event, "cp_towards": towards.get((event["job"], event["addr"]))}  # type: ignore[arg-type]
        for event in _of(events, "rank")
    ]
    return pl.DataFrame(rows, schema=RANK).sort("job", "rank")


def _pairs(
    flows: pl.DataFrame, ranks: pl.DataFrame, jobs: pl.DataFrame, steps: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the directed pairs that carried bulk data with their kinds, and all others within a job.

    Bytes count while the job trains, so that the weights' first broadcast makes no pair a bulk one.
    """
    spans = jobs.group_by("job").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    training = steps.group_by("job").agg(pl.col("start_ns").min().alias("since_ns"))
    members = ranks.select("job", "addr")
    within = (
        members.rename({"addr": "src_addr"})
        .join(members.rename({"addr": "dst_addr"}), on="job")
        .filter(pl.col("src_addr") != pl.col("dst_addr"))
        .join(spans, on="job")
        .join(training, on="job")
        .join(flows.select(*ENDS, "flow_start_ns", "bytes", "packets"), on=ENDS)
        .filter(pl.col("flow_start_ns").is_between("start_ns", "end_ns"))
    )
    at_work = (pl.col("flow_start_ns") >= pl.col("since_ns")) * pl.col("bytes")
    carried = within.group_by("job", *ENDS).agg(pl.col("bytes").sum(), pl.col("packets").sum(), at_work=at_work.sum())
    kinds = carried.join(_group_kinds(ranks), on=["job", *ENDS]).with_columns(
        together=pl.col("kind").sort().str.join("+").over("job", *ENDS)
    )
    bulk = kinds.filter(pl.col("at_work") >= BULK_RATIO * pl.col("at_work").max().over("job", "together"))
    pairs = bulk.select("job", *ENDS, "kind").sort("job", *ENDS, "kind")
    minor = (
        carried.join(pairs, on=["job", *ENDS], how="anti")
        .join(kinds.select("job", *ENDS, group_kind="kind").unique(["job", *ENDS]), on=["job", *ENDS], how="left")
        .with_columns(pl.col("group_kind").fill_null("none"))
        .select("job", *ENDS, "group_kind", "bytes", "packets")
        .sort("job", *ENDS)
    )
    return pairs, minor


def _group_kinds(ranks: pl.DataFrame) -> pl.DataFrame:
    """Return each group's directed pairs: `job`, `src_addr`, `dst_addr`, `kind`.

    A ring of K/V blocks goes one way, which the ranks logged. Where other messages pass between the ranks that share
    gradients, only the hops of gloo's all-reduce are `dp`: it goes from each rank of a group to the one before it.
    """
    rows = []
    for rank in ranks.rows(named=True):
        own, ring = rank["addr"], rank["cp_towards"]
        alone = not ring and not rank["ep_group"]
        met = {"pp": rank["pp_group"] or [], "ep": rank["ep_group"] or [], "cp": [ring] if ring else [], "dp": []}
        for group in (rank["dp_group"] or [], rank["expert_dp_group"] or []):
            met["dp"] += group if alone else [group[place - 1] for place, addr in enumerate(group) if addr == own]
        rows += [(rank["job"], own, addr, kind) for kind, addrs in met.items() for addr in addrs if addr != own]
    schema = dict.fromkeys(("job", *ENDS, "kind"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row").unique()


def effects(faults: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add to each fault what it did to the steps of its job.

    Parameters
    ----------
    faults : `job`, `start_ns`, `end_ns`
    steps : `job`, `end_ns`; a step lasts from the end of the one before it to its own

    Returns
    -------
    `faults` with `effect`, `longest` (ratios by which the steps that a fault overlaps are longer than the job's other
    steps: their mean, the longest of them, against the median) and `noise` (standard deviation of the other steps, a
    ratio of their median, by their median absolute deviation); NULL if no step was finished
    """
    lasted = steps.sort("job", "end_ns").select(
        "job", begins="end_ns", ends=pl.col("end_ns").shift(-1).over("job")
    ).drop_nulls()  # fmt: skip
    lasted = lasted.with_columns(length=(pl.col("ends") - pl.col("begins")).cast(pl.Float64))
    numbered = faults.with_row_index("fault")
    lasting = numbered.filter(pl.col("kind") != "killed_rank")  # no step is finished after it
    met = lasted.join(lasting.select("fault", "job", "start_ns", "end_ns"), on="job").filter(
        pl.col("begins") < pl.col("end_ns"), pl.col("ends") > pl.col("start_ns")
    )
    others = lasted.join(met, on=["job", "ends"], how="anti").with_columns(usual=pl.col("length").median().over("job"))
    usual = others.group_by("job").agg(
        pl.col("usual").first(),
        noise=MAD_TO_SIGMA * (pl.col("length") - pl.col("usual")).abs().median() / pl.col("usual").first(),
    )
    felt = met.group_by("fault").agg(effect=pl.col("length").mean(), longest=pl.col("length").max())
    return (
        numbered.join(felt, on="fault", how="left")
        .join(usual, on="job", how="left")
        .sort("fault")
        .select(*faults.columns, *(pl.col(name) / pl.col("usual") - 1 for name in ("effect", "longest")), "noise")
    )


def _faults(logs: Path, events: list[dict[str, object]]) -> pl.DataFrame:
    """Return what was injected, and a row for each time that all ranks of a job waited for a checkpoint.

    Slow storage is no row of its own: the waits of that time have its severity.
    """
    injected = pl.DataFrame(json.loads((logs / "faults.json").read_text()), schema=FAULT)
    slow = injected.filter(pl.col("kind") == "slow_storage")
    injected = injected.filter(pl.col("kind") != "slow_storage")
    written = pl.DataFrame(_of(events, "checkpoint"), schema={**STEP, "bytes": pl.Int64})
    stalls = (
        written.group_by("job", "step")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .with_columns(kind=pl.lit("checkpoint_stall"), subject_type=pl.lit("job"), subject="job", severity=1.0)
        .select(list(FAULT))
    )
    for one in slow.rows(named=True):
        during = pl.col("end_ns") > one["start_ns"]
        if one["end_ns"] is not None:  # else it was slow until the capture ended
            during &= pl.col("start_ns") < one["end_ns"]
        stalls = stalls.with_columns(severity=pl.when(during).then(one["severity"]).otherwise("severity"))
    return pl.concat([injected, stalls]).sort("start_ns")


def _lasting(faults: pl.DataFrame, launched: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Let a rank that was killed be dead until its job is launched again, or nothing more is seen."""
    again = launched.group_by(job=pl.col("job").str.strip_suffix(AGAIN)).agg(
        again_ns=pl.col("start_ns").filter(pl.col("job").str.ends_with(AGAIN)).min()
    )
    last_ns = pl.lit(flows["flow_start_ns"].max(), pl.Int64)
    killed = pl.col("kind") == "killed_rank"
    until = pl.max_horizontal("end_ns", pl.coalesce("again_ns", last_ns))
    return (
        faults.join(again, on="job", how="left", maintain_order="left")
        .with_columns(end_ns=pl.when(killed).then(until).otherwise("end_ns"))
        .select(faults.columns)
    )


def _pauses(logs: Path, rank_steps: pl.DataFrame) -> pl.DataFrame:
    """Return when jobs stood still on purpose: from the last step before an evaluation to the first one after it."""
    every = {job: json.loads((logs / f"{job}.json").read_text()).get("evaluate_every", 0) for job in _jobs(logs)}
    steps = rank_steps.group_by("job", "step").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return (
        steps.sort("job", "step")
        .with_columns(every=pl.col("job").replace_strict(every, return_dtype=pl.Int64))
        .select("job", "every", "step", start_ns="end_ns", end_ns=pl.col("start_ns").shift(-1).over("job"))
        .filter(pl.col("every") > 0, (pl.col("step") + 1) % pl.col("every") == 0, pl.col("end_ns").is_not_null())
        .select(pl.lit("evaluation").alias("kind"), "job", "start_ns", "end_ns")
        .cast(pl.Schema(PAUSE))
    )


def _saved(logs: Path, faults: pl.DataFrame) -> pl.DataFrame:
    """Return when jobs waited for checkpoints that they write by habit, while storage was as quick as ever.

    They are faults as well, for a habit may be dear, and telling it is right. But nobody is asked to tell it.
    """
    every = {job: json.loads((logs / f"{job}.json").read_text()).get("checkpoint_every", 0) for job in _jobs(logs)}
    wait = pl.col("end_ns") - pl.col("start_ns")
    return (
        faults.filter(pl.col("kind") == "checkpoint_stall", pl.col("severity") == 1)
        .filter(pl.col("job").replace_strict(every, default=0, return_dtype=pl.Int64) > 0)
        .filter(wait <= ALIKE * wait.min().over("job"))
        .select(pl.lit("checkpoint").alias("kind"), "job", "start_ns", "end_ns")
        .cast(pl.Schema(PAUSE))
    )


def _noise(logs: Path, events: list[dict[str, object]]) -> pl.DataFrame:
    """Return the traffic that was not training, checkpoints included."""
    storage = [json.loads((logs / f"{job}.json").read_text())["storage"] for job in _jobs(logs)]
    rows = [
        {**event, "kind": "checkpoint", "src": event["addr"], "dst": storage[0]} for event in _of(events, "checkpoint")
    ]
    for kind in ("bulk_outside", "host_copy", "chatter"):
        for file in sorted(logs.glob(f"{kind}-*.jsonl")):
            src = file.stem.split("-")[-1]
            rows += [{"kind": kind, "src": src, **json.loads(line)} for line in file.read_text().splitlines()]
    return pl.DataFrame(rows, schema=NOISE).sort("start_ns", "src", "dst")
