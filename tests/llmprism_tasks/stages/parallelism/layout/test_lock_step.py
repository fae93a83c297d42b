"""GPUs of a host that send in lock-step are peers; those that send at moments of their own are replicas."""

from __future__ import annotations

import random

import polars as pl
import pytest
from handmade import MS, members

from llmprism_tasks.stages.parallelism.layout import lock_step

HOSTS = "ab"


def peers(
    apart_ms: float,
    *,
    width: int = 2,
    gpus: int = 4,
    steps: int = 10,
    seed: int = 1,
    hosts_ms: float = 0.0,
    kind: str = "pp",
    gradients: bool = False,
    misread: int = 0,
    cut_off: int = 0,
) -> int | str | None:
    """Return what is found of pipelines from host to host, whose replicas of `width` GPUs send up to so much apart, and
    hosts up to `hosts_ms` besides, and which reduce gradients at one moment: their peers, or `absent`. Of each host's
    GPUs the first `misread` ones seem to send up to 100 ms apart; the steps of the first `cut_off` ones end before the
    last message of the others' steps."""
    draw = random.Random(seed)
    rows = []
    for step in range(steps):
        for host, to in zip(HOSTS, reversed(HOSTS), strict=True):
            late = draw.uniform(0, hosts_ms)
            own = [late + draw.uniform(0, apart_ms) for _ in range(gpus // width)]
            rows += [
                ("j", step, f"{host}{gpu}", f"{to}{gpu}", round((step * 1000 + offset + off + own[gpu // width]) * MS))
                for gpu in range(gpus)
                for off in ([draw.uniform(0, 100)] if gpu < misread else [0.0])
                for offset in (0, 100 + 40 * (step % 3))
            ]
        if gradients:
            met = round((step * 1000 + 500) * MS)
            rows += [("j", step, f"{host}{gpu}", f"c{gpu}", met) for host in HOSTS for gpu in range(gpus)]
    flows = pl.DataFrame(rows, schema=["job_id", "step", "src_addr", "dst_addr", "flow_start_ns"], orient="row")
    reduced = pl.col("dst_addr").str.starts_with("c")
    kinds = pl.when(reduced).then(pl.lit("dp")).otherwise(pl.lit(kind))
    pairs = flows.select("job_id", "src_addr", "dst_addr", kind=kinds).unique().with_row_index("pair")
    early = pl.col("src_addr").str.slice(1).cast(pl.Int64) < cut_off
    flows = flows.with_columns(
        step=pl.when(early).then((pl.col("flow_start_ns") + 950 * MS) // (1000 * MS)).otherwise("step")
    )
    sent = (
        flows.join(pairs, on=["src_addr", "dst_addr"])
        .group_by("pair", "step")
        .agg(first_ns=pl.col("flow_start_ns").min(), last_ns=pl.col("flow_start_ns").max())
    )
    piped = flows.join(pairs.filter(pl.col("kind") == "pp"), on=["src_addr", "dst_addr"]).select(
        "pair", "flow_start_ns"
    )
    nics = members({"j": {f"{host}{gpu}": host for host in HOSTS for gpu in range(gpus)}})
    found = lock_step.peers(sent, piped, pairs, nics)
    return found["peers"].item() if found.height else "absent"


@pytest.mark.parametrize(("apart_ms", "found"), [(0, 4), (2, 4), (20, 2)])
def test_peers_send_together_and_replicas_do_not(apart_ms: float, found: int) -> None:
    assert peers(apart_ms) == found


def test_who_begins_to_reduce_together_is_no_peer_if_its_pipeline_is_apart() -> None:
    """A collective may begin when its last member is there, on all of them at once."""
    assert peers(20, gradients=True) == 2
    assert peers(0, gradients=True) == 4


def test_every_gpu_may_be_a_replica() -> None:
    assert peers(20, width=1) == 1


@pytest.mark.parametrize(("misread", "found"), [(0, 2), (2, 2), (4, 2), (6, "absent"), (8, 1)])
def test_gpus_whose_steps_are_misread_do_not_outvote_peers(misread: int, found: int | str) -> None:
    assert peers(20, gpus=8, misread=misread) == found


@pytest.mark.parametrize(
    ("kind", "steps", "found"), [("dp", 3, "absent"), ("dp", 4, 4), ("pp", 1, "absent"), ("pp", 2, 4)]
)
def test_a_few_steps_say_nothing(kind: str, steps: int, found: int | str) -> None:
    """Of a pipeline each step has two moments: its first message, and its last."""
    assert peers(0, steps=steps, kind=kind) == found


@pytest.mark.parametrize(("apart_ms", "found"), [(0, 4), (20, 2)])
@pytest.mark.parametrize("cut_off", [1, 2, 3])
def test_peers_whose_steps_are_cut_elsewhere_are_known_by_their_messages(
    apart_ms: float, found: int, cut_off: int
) -> None:
    assert peers(apart_ms, cut_off=cut_off) == found


@pytest.mark.parametrize(
    ("apart_ms", "width", "hosts_ms", "found"),
    [(1.0, 1, 30.0, 4), (1.0, 1, 1.0, None), (0.0, 4, 0.0, None), (20.0, 1, 0.0, 1), (20.0, 2, 0.0, 2)],
)
def test_who_exchanges_tokens_is_in_step_with_those_of_other_hosts(
    apart_ms: float, width: int, hosts_ms: float, found: int | None
) -> None:
    """Peers are closer than an exchange makes them; where they are not, it may be the exchange that keeps them in step,
    and where they are apart, they are none. Two groups of peers in a host are as far apart as hosts are."""
    assert peers(apart_ms, width=width, hosts_ms=hosts_ms, steps=40, kind="ep") == found
    assert peers(apart_ms, width=width, hosts_ms=hosts_ms, steps=40, kind="dp") is not None
