"""Jobs into a folder: flow records, topology and truth, in the tables that `tests/golden` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from accuracy.second_source.execution import Run, Training
from accuracy.second_source.fabric import SECOND, Fabric, flow_records

START_NS = 1_800_000_000 * SECOND // (60 * SECOND) * 60 * SECOND
HOSTS_PER_LEAF = 4


@dataclass(frozen=True)
class Bulk:
    """A copy between two NICs at a share of their rate."""

    src: str
    dst: str
    start_s: float
    end_s: float
    share: float


@dataclass(frozen=True)
class Platform:
    """What happens on it.

    Attributes
    ----------
    rate : bytes per second of a NIC
    idle_s, lost : as for `flow_records`
    """

    jobs: Sequence[Training]
    hosts: int
    gpus: int = 8
    bulk: Sequence[Bulk] = ()
    rate: float = 25e9
    idle_s: float = 0.005
    lost: float = 0.0


def nic(host: int, gpu: int) -> str:
    return f"10.{host // 250}.{host % 250}.{gpu + 1}"


def write(platform: Platform, folder: Path, seed: int) -> None:
    """Run the jobs of a platform and write what a collector saw of them."""
    rng = np.random.default_rng(seed)
    fabric = Fabric(rng, platform.rate)
    runs = [Run(job, fabric, rng) for job in platform.jobs]
    for run in runs:
        run.run()
    for one in platform.bulk:
        fabric.bulk(one.start_s, one.end_s, one.src, one.dst, one.share * platform.rate)
    where = {nic(host, gpu): (host, gpu) for host in range(platform.hosts) for gpu in range(platform.gpus)}
    leaf_of = {addr: f"leaf{host // HOSTS_PER_LEAF}" for addr, (host, _) in where.items()}
    folder.mkdir(parents=True, exist_ok=True)
    flow_records(fabric, START_NS, idle_s=platform.idle_s, lost=platform.lost, leaf_of=leaf_of).write_parquet(
        folder / "flows.parquet"
    )
    topology = [(addr, f"host-{host}", gpu, leaf_of[addr]) for addr, (host, gpu) in where.items()]
    pl.DataFrame(topology, schema=["addr", "host", "gpu", "leaf_switch"], orient="row").write_csv(
        folder / "topology.csv"
    )
    (folder / "truth").mkdir(exist_ok=True)
    for name, table in _truth(runs, where).items():
        table.write_parquet(folder / "truth" / f"{name}.parquet")


def _ns(seconds: str) -> pl.Expr:
    return START_NS + (pl.col(seconds) * SECOND).cast(pl.Int64)


def _truth(runs: Sequence[Run], where: dict[str, tuple[int, int]]) -> dict[str, pl.DataFrame]:
    jobs, pairs, steps, ranks = [], [], [], []
    for run in runs:
        job = run.job
        last = run.steps[-1][2] if run.steps else job.start_s
        jobs += [(job.name, addr, f"host-{where[addr][0]}", job.start_s, last) for addr in job.nics]
        pairs += [(job.name, *ends, kind) for ends, kinds in run.kinds.items() for kind in kinds]
        steps += [(job.name, *step) for step in run.steps]
        ranks += [(job.name, addr, rank, *job.place(rank)) for rank, addr in enumerate(job.nics)]
    frame = pl.DataFrame
    step_names = ["job", "step", "start_s", "end_s", "grad_s"]
    return {
        "truth_jobs": frame(jobs, ["job", "addr", "host", "start_s", "end_s"], orient="row").select(
            "job", "addr", "host", start_ns=_ns("start_s"), end_ns=_ns("end_s")
        ),
        "truth_pairs": frame(pairs, ["job", "src_addr", "dst_addr", "kind"], orient="row"),
        "truth_steps": frame(steps, step_names, orient="row").select(
            "job", "step", start_ns=_ns("start_s"), end_ns=_ns("end_s"), grad_end_ns=_ns("grad_s")
        ),
        "truth_ranks": frame(ranks, ["job", "addr", "rank", "pp_index", "dp_index", "tp_index"], orient="row"),
    }
