"""Joined messages: what pairs do whose messages a collector makes one record of, another number of them each time.

A collector that waits long joins what is sent shortly after another. How many messages it joins is chance, so no size
may recur; but each record is as large as so many messages. Blocks that go around a ring of context still go on through
the step then, and micro-batches still take turns. Only this is told of them: which tensors there are, sizes say.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.pair_kinds.classifier import votes
from llmprism_tasks.stages.parallelism.pair_kinds.features import stream_steps
from llmprism_tasks.stages.traffic import nic_pairs, size_classes


def joined(flows: pl.DataFrame, pairs: pl.DataFrame, periods: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Judge pairs by their records as the messages that these are whole numbers of.

    Parameters
    ----------
    flows, pairs, periods : as for `stream_steps`

    Returns
    -------
    `pair`, `message` (bytes), and as `classifier.votes` returns them `pipeline`, `filling`. Pairs of which neither
    direction has a record of several messages are absent
    """
    known = nic_pairs.flows_of_pairs(flows, pairs.select("pair"))
    messages = whole_messages(known, known, settings.rhythm.same_size, settings)
    several = messages.filter(pl.col("messages") > 1)["pair"].implode()
    either = pairs.filter(pl.col("pair").is_in(several) | pl.col("back").is_in(several))
    asked = either.join(messages, on="pair", how="semi", maintain_order="left")
    if asked.is_empty():
        return asked.select("pair", message=pl.lit(0.0), pipeline=pl.lit(0.0), filling=pl.lit(0.0))
    single = messages.with_columns(bytes=pl.col("message").round().cast(pl.Int64)).select(known.columns)
    steps = stream_steps(nic_pairs.flows_of_pairs(single, asked.select("pair")), asked, periods, settings)
    return votes(steps, settings).select("pair", "pipeline", "filling", message="common_size")


def whole_messages(flows: pl.DataFrame, sized: pl.DataFrame, tolerance: float, settings: Settings) -> pl.DataFrame:
    """Return the records of pairs that are whole numbers of one message, with its bytes and how many: `message`,
    `messages`.

    The message is the smallest size that recurs in most of a pair's steps. Pairs most of whose bytes are something else
    are absent.

    Parameters
    ----------
    flows : bulk flows with `pair` and `step`, in the order of `nic_pairs.numbered`
    sized : those that have the sizes of messages, in this order
    tolerance : how far, in messages, a record may be from a whole number of them
    """
    classes = size_classes.classes(sized.select("pair", "bytes"), settings.rhythm.same_size)
    message = (
        sized.group_by("pair", size_class=pl.Series(classes))
        .agg(pl.col("step").n_unique(), message=pl.col("bytes").median())
        .join(sized.group_by("pair").agg(steps=pl.col("step").n_unique()), on="pair")
        .filter(pl.col("step") >= settings.parallelism.least_presence * pl.col("steps"))
        .group_by("pair")
        .agg(pl.col("message").min())
    )
    times = pl.col("bytes") / pl.col("message")
    whole = (times.round() >= 1) & ((times - times.round()).abs() <= tolerance)
    return (
        flows.join(message, on="pair", maintain_order="left")
        .with_columns(whole=whole, messages=times.round())
        .filter((pl.col("bytes") * pl.col("whole")).sum().over("pair") >= MAJORITY * pl.col("bytes").sum().over("pair"))
        .filter("whole")
    )
