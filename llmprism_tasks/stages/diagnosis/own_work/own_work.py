"""Own work: how long a NIC's host computes without waiting for another NIC, compared with its peers.

In synchronous training all members wait for the slow one: steps, groups and most messages of a job are late together.
Where collectives are rare in a pipeline, the first forward pass shows a stage's own work (`first_forward`). Elsewhere
the compute gaps between collectives show it (`compute_gaps`). The replicas of a stage do the same work and show what is
usual.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import LEAST_VOTERS, MAJORITY
from llmprism_tasks.stages.diagnosis.own_work.compute_gaps import EARLY_BURST, compute_gap_work
from llmprism_tasks.stages.diagnosis.own_work.first_forward import first_forward_work
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import carried
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import NicArrays, to_nic_arrays, without_logs
from llmprism_tasks.stages.liveness.last_exchange import CLOCK_ERROR_NS
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.timeline.placement import NIC, STEP
from llmprism_tasks.stages.traffic.nic_pairs import PAIR
from llmprism_tasks.stages.traffic.opposite import opposite

EXCHANGING = ("ep", "cp")
"""Kinds of traffic in every layer; ranks wait for each other through it between the messages of a pipeline."""

SAME_ROLE = 7 / 8
"""Ratio of its peers' gradient bytes from which a NIC does what they do: those of a ring move as many. In the trees of
NCCL (double binary trees) a root has fewer neighbours than an inner node, and moves three quarters of its bytes, or
less; between its turns it waits, which looks like computing."""

PEER_COLUMNS = ["job_id", "component", "step_index", "last_stage", "entered"]
"""Columns that are equal for peers in a step. The last stage's measured time includes the backward pass, and that of
who was not seen to wait for an input all that comes before its first output."""


def own_work(
    flows: pl.DataFrame,
    steps: pl.DataFrame,
    groups: pl.DataFrame,
    *,
    hosts: pl.DataFrame | None = None,
    early: float = EARLY_BURST,
    sent_only: bool = False,
) -> pl.DataFrame:
    """Compare each NIC's own work in a step with that of its peers.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`, `current`
    groups : `job_id`, `addr`, `component`: data-parallel groups, whose members are each other's peers
    hosts : `job_id`, `addr`, `host`, `pp_stage`; ranks of a stage in one host that end a pass together began it
        together, when the last of them had its input. None if hosts are not known
    early, sent_only : as for `compute_gap_work`

    Returns
    -------
    sorted by `STEP`: the columns of `steps`, the columns measured by `compute_gap_work` or `first_forward_work` (NULL
    if only the other measures them), `component` (of peers; NULL without replicas), `members` (number of peers, the NIC
    itself included), `excess` (of the pace over the peers', as a ratio, or of `own_ns` if there is one peer and
    that is longer by less than half as much; NULL without peers, where most of them show fewer exchanges, and for who
    moves fewer gradients than they do)
    """
    seen = to_nic_arrays(without_logs(flows), steps)
    jobs = seen.pairs["job_id"].unique()
    entering = _pipeline_jobs(seen)
    others = jobs.filter(~jobs.is_in(entering.implode()))
    gaps = compute_gap_work(seen, others, early=early, sent_only=sent_only)
    passes = first_forward_work(seen, entering).join(_relaying_nics(seen.pairs), on=NIC, how="anti")
    if hosts is not None:
        passes = _align_peer_begins(passes, hosts)
    work = pl.concat([passes, _without_expert_load(gaps, seen)], how="diagonal")
    members = pl.when(pl.col("component").is_not_null()).then(pl.len().over(PEER_COLUMNS)).otherwise(1)
    placed = work.join(_split_peer_groups(seen.pairs, groups), on=NIC, how="left")
    grouped = _without_lost_messages(placed).drop("outputs", "sent").with_columns(members=members)
    if hosts is not None:
        lone = grouped.filter(pl.col("members") == 1)
        grouped = grouped.join(_cut_within_passes(lone, seen.pairs, hosts), on=[*STEP, "members"], how="anti")
    grouped = grouped.with_columns(relieved=pl.coalesce("relieved", "own_ns"))
    excess, longer = (pl.col(name) / usual(name) - 1 for name in ("pace", "relieved"))
    # A burst in the middle of a peer's gap makes its pace smaller, though it computes for as long. Others outvote it.
    cut = (excess > 0) & (longer < MAJORITY * excess) & (pl.col("members") < LEAST_VOTERS)
    shown = pl.when(cut).then(longer).otherwise(excess)
    # Where a collector joins two exchanges, what was computed between them is not seen.
    joined = (pl.col("exchanges").rank("min").over(PEER_COLUMNS) - 1 > MAJORITY * pl.col("members")).fill_null(
        value=False
    )
    moved = pl.col("moved").median()
    fewer = (moved.over(NIC) < SAME_ROLE * moved.over("job_id", "component")).fill_null(value=False)
    return (
        grouped.join(_moved_gradients(seen), on=STEP, how="left")
        .with_columns(excess=pl.when(~joined & ~fewer).then(shown))
        .drop("relieved", "exchanges", "moved")
        .sort(STEP)
    )


def _moved_gradients(seen: NicArrays) -> pl.DataFrame:
    """Return the gradient bytes that each NIC that has any sends in a step or receives, the smaller of both: `STEP`,
    `moved`. Of a neighbour that is seen as no member of the job only one way is missing."""
    chosen = seen.transfers.kinds == seen.number("dp")
    ends = seen.transfers.senders, seen.transfers.receivers
    sent, received = (carried(seen.transfers, seen.numbers, chosen, end) for end in ends)
    return seen.steps.select(*STEP, moved=np.minimum(sent, received)).filter(pl.Series(sent + received > 0))


def _without_lost_messages(passes: pl.DataFrame) -> pl.DataFrame:
    """Leave out the first passes of NICs that sent fewer messages in a step than their peers, and fewer bytes.

    A collector loses records. If the lost one is that of the first message, the pass seems to last until the second.
    Records that were split or joined move as many bytes, and samples of uneven length are as many messages. Without
    peers, what a NIC sends in its other steps is usual.

    Parameters
    ----------
    passes : with `PEER_COLUMNS`, `addr`, `outputs` and `sent`, which are NULL where no pass was measured
    """
    peers = [PEER_COLUMNS, [*NIC, "last_stage", "entered"]]
    outputs, sent = (
        pl.when(pl.col("component").is_not_null()).then(each[0]).otherwise(each[1])
        for each in ([pl.col(name).quantile(0.5, "higher").over(who) for who in peers] for name in ("outputs", "sent"))
    )
    message = sent / outputs
    lost = (pl.col("outputs") < outputs) & (pl.col("sent") < sent - MAJORITY * message)
    return passes.filter(~lost.fill_null(value=False))


def _relaying_nics(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the NICs that carry messages of other GPUs' stages, too: `job_id`, `addr`.

    A stage sends gradients back to the NIC that its activations came from. Where a message leaves its host at the NIC
    on the receiver's rail (NCCL's PXN), it came by another way, and none of these NICs shows one stage's passes.

    Parameters
    ----------
    pairs : `job_id`, `kind`, `src_addr`, `dst_addr`
    """
    key = ["job_id", *PAIR]
    back = opposite(pairs, key=("job_id",)).unique()
    one_way = pairs.filter(pl.col("kind") == "pp").join(back, on=key, how="anti")
    return pl.concat([one_way.select("job_id", addr=end) for end in PAIR]).unique()


def _cut_within_passes(lone: pl.DataFrame, pairs: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Return the passes of NICs without peers of which nobody knows when they began: `STEP`, `members`.

    A micro-batch enters a pipeline in one host, that of the first stage, and NICs of the others wait for it. If NICs of
    several hosts wait for no input, steps are cut within passes. What these NICs send first may then be the rest of the
    step before, now and then. Peers are cut at the same place.

    Parameters
    ----------
    lone : passes with `entered`
    pairs : `job_id`, `kind`, `src_addr`, `dst_addr`
    """
    pipelines = pair_graph.components(pairs.filter(pl.col("kind") == "pp")).rename({"component": "pipeline"})
    begins = lone.filter(~pl.col("entered")).join(pipelines, on=NIC).join(hosts.select(*NIC, "host"), on=NIC)
    several = pl.col("host").n_unique().over("job_id", "pipeline") > 1
    return begins.filter(several).select(*STEP, "members")


def _align_peer_begins(passes: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Let tensor-parallel ranks begin a pass together: they exchange data inside their host in every layer.

    The input of one of them may come late, over a slow path, and the others wait for it. Ranks whose outputs leave at
    the same time, by the clocks of switches, are taken for such ranks.
    """
    stage = ["job_id", "step_index", "host", "pp_stage", "last_stage"]
    over = pl.col("begins_ns") + pl.col("own_ns").cast(pl.Int64)
    placed = passes.join(hosts.select(*NIC, "host", "pp_stage"), on=NIC, how="left", maintain_order="left")
    ordered = placed.with_columns(over=over).with_row_index("row").sort(*stage, "over")
    apart = (pl.col("over").diff().over(stage) > CLOCK_ERROR_NS).fill_null(value=False)
    together = ordered.with_columns(together=apart.cum_sum().over(stage))
    latest = pl.when(pl.col("host").is_not_null()).then(pl.col("begins_ns").max().over(*stage, "together"))
    begins = pl.min_horizontal(pl.coalesce(latest, "begins_ns"), "over")
    share = (pl.col("over") - pl.col("latest_ns")) / pl.col("own_ns")
    return (
        together.with_columns(latest_ns=begins)
        .with_columns(pl.col("own_ns", "pace", "share") * share, begins_ns=pl.col("latest_ns"))
        .sort("row")
        .select(passes.columns)
    )


def _pipeline_jobs(seen: NicArrays) -> pl.Series:
    """Return the jobs that send more bytes through a pipeline than by expert and context parallelism.

    Exchanges in every layer outweigh messages sent once per stage; a job with less of them has misclassified pairs.
    """
    jobs = seen.steps["job_id"].unique().sort()
    job = seen.steps.select(pl.col("job_id").rank("dense") - 1).to_series().to_numpy()
    transfers = seen.transfers
    ends = transfers.senders, transfers.receivers
    exchanged, piped = (
        np.sum([np.bincount(job, carried(transfers, seen.numbers, chosen, end), jobs.len()) for end in ends], axis=0)
        for chosen in (
            np.isin(transfers.kinds, [seen.number(kind) for kind in kinds]) for kinds in (EXCHANGING, ["pp"])
        )
    )
    return jobs.filter(pl.Series(piped > exchanged))


def usual(column: str) -> pl.Expr:
    """Return the usual value among the peers of a step; NULL without peers."""
    # Two peers cannot outvote each other: the quicker one is the reference.
    return (
        pl.when(pl.col("members") >= LEAST_VOTERS)
        .then(pl.col(column).median().over(PEER_COLUMNS))
        .when(pl.col("members") > 1)
        .then(pl.col(column).min().over(PEER_COLUMNS))
    )


def _split_peer_groups(pairs: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Split data-parallel groups by the members that exchange context blocks or tokens, and so wait for each other.

    A group is not split if fewer than `LEAST_VOTERS` members would remain: rings with hops inside a host seem to fall
    apart.
    """
    hops = pairs.filter(pl.col("kind").is_in(EXCHANGING)).select("job_id", "src_addr", "dst_addr").unique()
    within = pair_graph.components(hops).rename({"component": "circle"})
    both = groups.join(within, on=NIC, how="left")
    circle = ["job_id", "component", "circle"]
    large = (pl.len().over(circle) >= LEAST_VOTERS) & pl.col("circle").is_not_null()
    numbered = both.with_columns(circle=pl.when(large).then("circle"))
    return numbered.select(*NIC, component=pl.struct("component", "circle").rank("dense").over("job_id").cast(pl.Int64))


def _without_expert_load(work: pl.DataFrame, seen: NicArrays) -> pl.DataFrame:
    """Take off the extra work of a rank whose experts receive more tokens than others'.

    A rank's computing grows at most in proportion to the tokens it receives, so `pace` is divided by that ratio, and
    `own_ns` as `relieved`.
    """
    work = work.with_columns(relieved=pl.col("own_ns").cast(pl.Float64))
    expert = seen.number("ep")
    if expert < 0:
        return work
    received = carried(seen.transfers, seen.numbers, seen.transfers.kinds == expert, seen.transfers.receivers)
    load = (
        seen.steps.select(*STEP, received=received)
        .filter(pl.col("received") > 0)
        .select(*STEP, load=pl.col("received") / pl.col("received").mean().over("job_id", "step_index"))
    )
    relief = pl.max_horizontal(pl.col("load").fill_null(1.0), 1.0)
    return work.join(load, on=STEP, how="left").with_columns(pl.col("pace", "relieved") / relief).drop("load")
