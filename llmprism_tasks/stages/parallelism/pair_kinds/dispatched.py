"""What is dispatched comes back: tokens whose sizes never repeat, though they are as many bytes in every step.

A router may send as many tokens in all of two directions, whatever it sends in each: then a pair carries equal bytes in
every step, as gradients do. But what an expert's NIC gets in a dispatch it returns in the combine, to the byte. So each
size goes one way and then the other in the same step, and hardly ever in another step. Gradients have sizes that repeat
in every step; of those that a collector splits or joins, the parts mostly come one way alone, or both ways at once. A
ring of two returns its halves as well: where a collector cuts these anywhere, some record has a size that comes back by
chance. But then one of the next step has it as often. So steps of which that is true count against it.

A NIC sends tokens in both passes. What it sends only when it has sent them for a pass goes on in the backward pass
alone, as gradients do that are reduced layer by layer; blocks of context and gathered parameters do not.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.kernels import recurring_sizes
from llmprism_tasks.stages.step_division.groups.templates.passes import SHORTEST_PASS
from llmprism_tasks.stages.step_division.periodicity import WHOLE_PAIR
from llmprism_tasks.stages.traffic import nic_pairs


def returned(flows: pl.DataFrame, pairs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Say in how many steps most of what a pair sends comes back in sizes of that step alone: `pair`, `returned` (ratio
    of its steps, less those of which as much comes back in the next one).

    Parameters
    ----------
    flows : bulk flows with `pair` and `step`, in the order of `nic_pairs.numbered`
    pairs : `pair`, `back` (the pair the other way round), of those that are asked
    """
    asked = pairs.drop_nulls("back").select("pair", "back")
    sent = nic_pairs.step_by_step(
        nic_pairs.flows_of_pairs(flows, asked).select("pair", "back", "step", "flow_start_ns", "flow_end_ns", "bytes")
    )
    bytes_, step = (sent[name].to_numpy() for name in ("bytes", "step"))
    fresh = recurring_sizes.sizes(bytes_, step, nic_pairs.starts_of_pairs(sent), settings.rhythm.same_size).fresh
    sent = sent.with_columns(fresh=fresh, size=pl.col("bytes").log(), step=pl.col("step").cast(pl.Int64))
    back = sent.filter("fresh").select("step", "size", back="pair", since_ns="flow_start_ns", until_ns="flow_end_ns")
    there = sent.filter("fresh").sort("size")
    came_back, by_chance = (
        _bytes_of_same_size(there, back.with_columns(pl.col("step") - later), settings).rename({"same_bytes": name})
        for later, name in ((0, "back_bytes"), (1, "chance_bytes"))
    )
    of_steps = (
        sent.group_by("pair", "step")
        .agg(pl.col("bytes").sum())
        .join(came_back, on=["pair", "step"], how="left")
        .join(by_chance, on=["pair", "step"], how="left")
    )
    own, chance = (
        (pl.col(name) >= MAJORITY * pl.col("bytes")).fill_null(value=False).mean()
        for name in ("back_bytes", "chance_bytes")
    )
    return of_steps.group_by("pair").agg(returned=pl.max_horizontal(own - chance, 0.0))


def begun_a_pass_later(steps: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Return the pairs of which the sender has sent tokens for a pass, typically, when the pair begins in a step.

    Parameters
    ----------
    steps : as `stream_steps` returns
    pairs : `pair`, `job_id`, `src_addr`, `expert` (ratio of its steps that say that it sends tokens)
    """
    whole = steps.filter(pl.col("size_class") == WHOLE_PAIR).select("pair", "step", "first_ns", "period_ns")
    sent = whole.join(pairs.select("pair", "job_id", "src_addr", "expert"), on="pair")
    of_nic = ["job_id", "src_addr", "step"]
    tokens = sent.filter(pl.col("expert") >= MAJORITY).group_by(of_nic).agg(since_ns=pl.col("first_ns").min())
    later = (pl.col("first_ns") - pl.col("since_ns")) / pl.col("period_ns")
    found = sent.join(tokens, on=of_nic).group_by("pair").agg(later=later.median())
    return found.filter(pl.col("later") >= SHORTEST_PASS)["pair"]


def _bytes_of_same_size(there: pl.DataFrame, back: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return how many bytes have sizes that come back at another time: `pair`, `step`, `same_bytes`.

    Parameters
    ----------
    there : `pair`, `back`, `step`, `size`, `bytes`, `flow_start_ns`, `flow_end_ns`, sorted by `size`
    back : `back`, `step` (the one of `there` that it is looked for in), `size`, `since_ns`, `until_ns`
    """
    found = there.join_asof(
        back.sort("size"),
        on="size",
        by=["back", "step"],
        strategy="nearest",
        tolerance=settings.parallelism.expert_variation,
        check_sortedness=False,
    )
    apart = (pl.col("since_ns") > pl.col("flow_end_ns")) | (pl.col("until_ns") < pl.col("flow_start_ns"))
    return found.group_by("pair", "step").agg(same_bytes=pl.col("bytes").filter(apart).sum())
