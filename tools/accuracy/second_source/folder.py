"""Jobs into a folder: flow records, topology and truth, in the tables that `llmprism evaluate` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from accuracy.second_source.execution import Run
from accuracy.second_source.fabric import SECOND, Collector, Fabric, flow_records
from accuracy.second_source.network import Network, Slow
from accuracy.second_source.training import Training

START_NS = 1_800_000_000 * SECOND // (60 * SECOND) * 60 * SECOND
HOSTS_PER_LEAF = 4
STORAGE = tuple(f"10.200.0.{number}" for number in range(1, 9))
"""Addresses outside the topology."""

FAULTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "kind": pl.String, "job": pl.String, "subject_type": pl.String, "subject": pl.String, "start_ns": pl.Int64,
    "end_ns": pl.Int64, "severity": pl.Float64, "accept": pl.List(pl.String), "right_kinds": pl.List(pl.String),
    "effect": pl.Float64, "longest": pl.Float64, "noise": pl.Float64, "halved": pl.Boolean,
}  # fmt: skip
"""Columns of `truth_faults`; see `measured`."""

PAUSES: dict[str, pl.DataType | type[pl.DataType]] = {
    "kind": pl.String, "job": pl.String, "start_s": pl.Float64, "end_s": pl.Float64,
}  # fmt: skip
"""Columns of `truth_pauses`, in seconds: evaluations. As with captures, a row about a single slow step in one of them
names no fault, and is not false."""

MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""


@dataclass(frozen=True)
class Bulk:
    """A copy between two NICs at a share of their rate."""

    src: str
    dst: str
    start_s: float
    end_s: float
    share: float


@dataclass(frozen=True)
class Fault:
    """What is wrong, and what may be said of it.

    Attributes
    ----------
    kind : of the fault
    job : the one that is ill; empty for a device that several jobs cross
    subject_type, subject : as in `diagnoses`
    start_s, end_s : when
    severity : factor, share of a rate, or seconds
    accept : further subjects that count as right, each as `type:subject`
    right_kinds : kinds of diagnosis that count as right
    halved : the pace of a device is halved, or worse
    """

    kind: str
    job: str
    subject_type: str
    subject: str
    start_s: float
    end_s: float
    severity: float = 1.0
    accept: tuple[str, ...] = ()
    right_kinds: tuple[str, ...] = ()
    halved: bool = False


@dataclass(frozen=True)
class Platform:
    """What happens on it.

    Attributes
    ----------
    rate : bytes per second of a NIC
    idle_s, lost, split, merged, skew_s : as for `Collector`
    spines : of the network
    inner : messages between NICs of a host stay inside it, where no switch sees them
    slow : devices of the network that are slow, and when
    chatter_s : mean seconds between two small messages of a NIC; 0: none
    faults : what is wrong; what it does is in `jobs` and `slow`
    """

    jobs: Sequence[Training]
    hosts: int
    gpus: int = 8
    bulk: Sequence[Bulk] = ()
    rate: float = 25e9
    idle_s: float = 0.005
    lost: float = 0.0
    split: float = 0.0
    merged: float = 0.0
    skew_s: float = 0.0
    spines: int = 1
    inner: bool = False
    slow: Sequence[Slow] = ()
    chatter_s: float = 0.0
    end_s: float = 178.0
    faults: Sequence[Fault] = ()


def nic(host: int, gpu: int) -> str:
    """Return the address of a host's NIC."""
    return f"10.{host // 250}.{host % 250}.{gpu + 1}"


def write(platform: Platform, folder: Path, seed: int, healthy: Platform | None = None) -> None:
    """Run the jobs of a platform and write what a collector saw of them.

    Parameters
    ----------
    healthy : the same platform without its faults, by which their effect is measured; jobs that are cut off are no
        faults then, for these are all named
    """
    where = {nic(host, gpu): (host, gpu) for host in range(platform.hosts) for gpu in range(platform.gpus)}
    leaf_of = {addr: f"leaf{host // HOSTS_PER_LEAF}" for addr, (host, _) in where.items()}
    network = Network(leaf_of | dict.fromkeys(STORAGE, "leaf-storage"), platform.spines, platform.slow)
    host_of = {addr: f"host-{host}" for addr, (host, _) in where.items()}
    runs, rng = _run(platform, network, host_of, seed)
    records = [record for run in runs for record in run.fabric.records]
    around = Fabric(rng, platform.rate, network, host_of=host_of if platform.inner else {})
    for one in platform.bulk:
        around.bulk(one.start_s, one.end_s, one.src, one.dst, one.share * platform.rate)
    if platform.chatter_s:
        around.chatter(0.5, platform.end_s, list(where), platform.chatter_s)
    collector = Collector(platform.idle_s, platform.lost, platform.split, platform.merged, platform.skew_s)
    folder.mkdir(parents=True, exist_ok=True)
    flow_records([*records, *around.records], rng, START_NS, collector, network).write_parquet(folder / "flows.parquet")
    topology = [(addr, host_of[addr], gpu, leaf_of[addr]) for addr, (_, gpu) in where.items()]
    pl.DataFrame(topology, schema=["addr", "host", "gpu", "leaf_switch"], orient="row").write_csv(
        folder / "topology.csv"
    )
    truth = _truth(runs, host_of)
    if healthy is None:
        truth["truth_faults"] = measured(cut_off(platform), truth["truth_steps"], truth["truth_steps"])
    else:
        well = _truth(_run(healthy, replace_slow(network), host_of, seed)[0], host_of)
        truth["truth_faults"] = measured(platform.faults, truth["truth_steps"], well["truth_steps"])
    (folder / "truth").mkdir(exist_ok=True)
    for name, table in truth.items():
        table.write_parquet(folder / "truth" / f"{name}.parquet")


def cut_off(platform: Platform) -> list[Fault]:
    """Return the jobs that end in the middle of a step, or come back: who says that they stopped is right."""
    found = []
    for place, job in enumerate(platform.jobs):
        again = [later.start_s for later in platform.jobs[place + 1 :] if later.name == job.name]
        if not job.in_order and (again or job.end_s < platform.end_s):
            until = min(again, default=platform.end_s)
            gone = {f"addr:{one}" for later in platform.jobs[place + 1 :] if later.name == job.name for one in job.nics
                    if one not in later.nics}  # fmt: skip
            hosts = {f"host:host-{one.split('.')[2]}" for one in gone}
            found.append(Fault("cut_off", job.name, "job", job.name, job.end_s, until, 1.0, (*sorted(gone | hosts),),
                               ("stopped", "ended", "hang")))  # fmt: skip
    return found


def replace_slow(network: Network) -> Network:
    """Return a network of the same paths in which nothing is slow."""
    return replace(network, slow=(), struck={})


def _run(
    platform: Platform, network: Network, host_of: dict[str, str], seed: int
) -> tuple[list[Run], np.random.Generator]:
    """Run all jobs, each with random numbers of its own, so that one job's trouble changes nothing in another."""
    runs: list[Run] = []
    first = np.random.default_rng(seed)
    taken: dict[str, int] = {}
    for place, job in enumerate(platform.jobs):
        rng = first if place == 0 else np.random.default_rng([seed, place])
        fabric = Fabric(rng, platform.rate, network, host_of=host_of if platform.inner else {})
        run = Run(job, fabric, rng, first_step=taken.get(job.name, 0))
        run.run()
        taken[job.name] = run.first_step + len(run.steps)
        runs.append(run)
    return runs, first


def measured(faults: Sequence[Fault], steps: pl.DataFrame, well: pl.DataFrame) -> pl.DataFrame:
    """Return `truth_faults`: each fault with its effect on the job that it slows most.

    Parameters
    ----------
    steps, well : `truth_steps` with the faults, and without any; steps are the same ones by job and number

    Returns
    -------
    columns of `FAULTS`. `effect`, `longest` : by which ratio the steps that end during a fault, or begin in it, are
    longer than without it: on average, and most of all; NULL if none ended. `noise` : standard deviation of the job's
    steps without faults, a ratio of their median, by their median absolute deviation
    """
    lengths = {}
    for name, table in (("with", steps), ("without", well)):
        lengths[name] = (
            table.sort("job", "step")
            .with_columns(begins=pl.col("grad_end_ns").shift().over("job"))
            .drop_nulls("begins")
            .select("job", "step", "begins", ends="grad_end_ns", length=pl.col("grad_end_ns") - pl.col("begins"))
        )
    usual = pl.col("length").median().over("job")
    noise = (
        lengths["without"]
        .with_columns(off=(pl.col("length") - usual).abs() / usual)
        .group_by("job")
        .agg(noise=MAD_TO_SIGMA * pl.col("off").median())
    )
    both = lengths["with"].join(lengths["without"].select("job", "step", before="length"), on=["job", "step"])
    both = both.with_columns(longer=pl.col("length") / pl.col("before") - 1).join(noise, on="job")
    rows = []
    for fault in faults:
        start, end = (START_NS + round(at * SECOND) for at in (fault.start_s, fault.end_s))
        met = both.filter(pl.col("begins") < end, pl.col("ends") > start)
        met = met.filter(pl.col("job") == fault.job) if fault.job else met
        each = met.group_by("job").agg(
            effect=pl.col("longer").mean(), longest=pl.col("longer").max(), noise=pl.col("noise").first()
        )
        worst = each.sort("effect").tail(1).to_dicts() or [{"effect": None, "longest": None, "noise": None}]
        itself = f"{fault.subject_type}:{fault.subject}"
        rows.append({
            "kind": fault.kind, "job": fault.job or None, "subject_type": fault.subject_type, "subject": fault.subject,
            "start_ns": start, "end_ns": end, "severity": fault.severity, "accept": [itself, *fault.accept],
            "right_kinds": list(fault.right_kinds), "halved": fault.halved,
            **{name: worst[0][name] for name in ("effect", "longest", "noise")},
        })  # fmt: skip
    return pl.DataFrame(rows, schema=FAULTS)


def _ns(seconds: str) -> pl.Expr:
    return START_NS + (pl.col(seconds) * SECOND).cast(pl.Int64)


def _truth(runs: Sequence[Run], host_of: dict[str, str]) -> dict[str, pl.DataFrame]:
    jobs, pairs, steps, ranks, pauses = [], set(), [], set(), []
    for run in runs:
        job = run.job
        last = run.steps[-1][2] if run.steps else job.start_s
        # Where rings stay inside hosts as long as they can, some NICs exchange nothing with others of their job. What
        # these write to storage now and then says of no window whose they are.
        members = set(job.nics)
        ends = [(src, dst) for _, _, src, dst, _, _ in run.fabric.records if src in members and dst in members]
        seen = {addr for pair in ends for addr in pair}
        jobs += [(job.name, addr, host_of[addr], job.start_s, last, addr in seen) for addr in job.nics]
        pairs |= {(job.name, *ends, kind) for ends, kinds in run.kinds.items() for kind in kinds}
        steps += [(job.name, *step) for step in run.steps]
        pauses += [("evaluation", job.name, *span) for span in run.evaluations]
        for rank, addr in enumerate(job.nics):
            stage, replica, tp_index = job.place(rank)
            ranks.add((job.name, addr, rank, stage, replica // job.cp, tp_index, replica % job.ep, replica % job.cp))
    frame = pl.DataFrame
    step_names = ["job", "step", "start_s", "end_s", "grad_s"]
    rank_names = ["job", "addr", "rank", "pp_index", "dp_index", "tp_index", "ep_index", "cp_index"]
    return {
        "truth_jobs": frame(jobs, ["job", "addr", "host", "start_s", "end_s", "visible"], orient="row").select(
            "job", "addr", "host", "visible", start_ns=_ns("start_s"), end_ns=_ns("end_s")
        ),
        "truth_pairs": frame(sorted(pairs), ["job", "src_addr", "dst_addr", "kind"], orient="row"),
        "truth_steps": frame(steps, step_names, orient="row").select(
            "job", "step", start_ns=_ns("start_s"), end_ns=_ns("end_s"), grad_end_ns=_ns("grad_s")
        ),
        "truth_ranks": frame(sorted(ranks), rank_names, orient="row"),
        "truth_pauses": frame(pauses, PAUSES, orient="row").select(
            "kind", "job", start_ns=_ns("start_s"), end_ns=_ns("end_s")
        ),
    }
