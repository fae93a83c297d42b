"""Taking turns: links of two stages whose messages a collector has merged, or that go both ways through the step.

Whatever the schedule, and however many parts of the model a stage holds: the first activation of a step goes down the
pipeline before anything can come up, and its last gradient comes up when nothing goes down any more. In a collective
both directions begin together and end together, but for who came late. Sizes do not tell here, for a collector that
waits long makes one record of several messages; but then a record is as large as so many messages, and it begins with
the first and ends with the last of them.

Only two stages that have no other neighbour are asked. Where parameters are gathered around a ring one way, and
gradients are reduced the other way, the one begins first and the other one ends last, too; but there a NIC has two
neighbours, with whom it shares the same.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.pair_kinds.joined_messages import whole_messages
from llmprism_tasks.stages.parallelism.pair_kinds.roles import SAME_ROLE
from llmprism_tasks.stages.traffic import nic_pairs, size_classes
from llmprism_tasks.stages.traffic.opposite import log_ratio, same_size

WHOLE_MESSAGE_TOLERANCE = 0.25
"""How far, in messages, a record may be from a whole number of them: of other sizes, half are as near by chance."""


def turns(
    flows: pl.DataFrame, links: pl.DataFrame, job_steps: pl.DataFrame, periods: pl.DataFrame, settings: Settings
) -> pl.DataFrame:
    """Say how often one direction of a link is first to begin and the other one last to end: `pair`, `turns`.

    Parameters
    ----------
    flows : bulk flows with `pair` and `step`, in the order of `nic_pairs.numbered`
    links : `pair`, `job_id`, `src_addr`, `dst_addr`, `back` (the pair the other way round) and `bytes_per_step`, of
        the pairs that are asked
    job_steps : `job_id`, `end_ns`; for a NIC's own steps end with its gradients, and messages may follow these
    periods : `job_id`, `period_ns`

    Returns
    -------
    `turns` is the ratio of steps in which the same direction begins first and the other one ends last; links of which
    most steps do not say so, whose messages are one burst of the step, or whose directions carry other messages or
    other numbers of them, are absent
    """
    both = _exclusive_links(links).select(
        "pair", "job_id", link=pl.min_horizontal("pair", "back"), down=pl.col("pair") < pl.col("back")
    )
    sent = nic_pairs.flows_of_pairs(flows, both)
    sized = size_classes.join_early_records(sent.select("pair", "step", "bytes"), settings.rhythm.same_size)
    rounds = _sum_by_link_and_step(whole_messages(sent, sized, WHOLE_MESSAGE_TOLERANCE, settings), job_steps)
    ratios = settings.parallelism
    interval = pl.min_horizontal(pl.col("^interval_.*$").median().over("link"))
    least = pl.max_horizontal(ratios.answer_interval * interval, pl.lit(ratios.answer_ms * 1e6))
    ahead, outlasted = (pl.col(f"{end}_up") - pl.col(f"{end}_down") for end in ("first_ns", "ended_ns"))
    downward, upward = (
        pl.all_horizontal(interval.is_not_null(), sign * ahead >= least, sign * outlasted >= least) for sign in (1, -1)
    )
    told = (
        rounds.with_columns(
            downward=downward.fill_null(value=False),
            upward=upward.fill_null(value=False),
            span_ns=pl.max_horizontal("^ended_ns.*$") - pl.min_horizontal("^first_ns.*$"),
        )
        .group_by("link", "job_id")
        .agg(
            pl.col("downward", "upward").mean(),
            pl.col("span_ns").median(),
            pl.col("^messages_.*$").sum(),
            pl.col("^message_.*$").drop_nulls().first(),
        )
        .join(periods, on="job_id")
        .filter(
            pl.col("span_ns") >= ratios.pipeline_spread * pl.col("period_ns"),
            same_size("message_down", "message_up", settings.rhythm.same_size),
            log_ratio("messages_down", "messages_up") <= settings.rhythm.answer_bytes,
        )
        .select("link", turns=pl.max_horizontal("downward", "upward"))
        .filter(pl.col("turns") >= MAJORITY)
    )
    return both.join(told, on="link").select("pair", "turns")


def in_the_middle(pairs: pl.DataFrame, settings: Settings) -> pl.Series:
    """Return the pairs both whose ends send as much to another NIC, in messages of the same size, and take turns there.

    A pipeline that is fed from both ends (DualPipe) has one such link: in its middle the micro-batches of both ends
    arrive, and leave, at the same time.

    Parameters
    ----------
    pairs : `pair`, `job_id`, `src_addr`, `dst_addr`, `bytes_per_step`, `common_size`, `pipeline` (ratio of its steps)
    """
    turning = pairs.filter(pl.col("pipeline") >= MAJORITY)
    found = pairs.drop_nulls("common_size")
    for end, other in (nic_pairs.PAIR, nic_pairs.PAIR[::-1]):
        beside = turning.select("job_id", end, beside=other, size="common_size", sent="bytes_per_step")
        alike = found.join(beside, on=["job_id", end]).filter(
            pl.col("beside") != pl.col(other),
            same_size("common_size", "size", settings.rhythm.same_size),
            log_ratio("bytes_per_step", "sent") <= SAME_ROLE,
        )
        found = found.join(alike, on="pair", how="semi")
    return found["pair"]


def _exclusive_links(links: pl.DataFrame) -> pl.DataFrame:
    """Keep the links that go both ways and whose ends exchange about as much with nobody else."""
    both = links.filter(pl.col("back").is_in(links["pair"].implode()))
    role = (pl.col("bytes_per_step").log() / SAME_ROLE).round()
    others = pl.concat([both.with_columns(role=role + off) for off in (-1, 0, 1)])
    peers = others.group_by("job_id", "src_addr", "role").agg(pl.col("dst_addr").n_unique())
    known = both.with_columns(role=role).join(peers.rename({"dst_addr": "peers"}), on=["job_id", "src_addr", "role"])
    single = known.filter(pl.col("peers") == 1)
    return single.filter(pl.col("back").is_in(single["pair"].implode()))


def _sum_by_link_and_step(messages: pl.DataFrame, job_steps: pl.DataFrame) -> pl.DataFrame:
    """Return what each link does in each step of its job: `link`, and of both directions `messages` (how many),
    `message` (bytes), `first_ns`, `ended_ns`, `interval` (ns between messages), as `…_down` and `…_up`."""
    start, several = pl.col("flow_start_ns"), pl.col("messages").sum() > 1
    return (
        messages.sort("flow_start_ns")
        .join_asof(
            job_steps.select("job_id", "end_ns").sort("end_ns"),
            left_on="flow_start_ns",
            right_on="end_ns",
            by="job_id",
            strategy="forward",
            check_sortedness=False,
        )
        .drop_nulls("end_ns")
        .group_by("link", "job_id", "end_ns", way=pl.when("down").then(pl.lit("down")).otherwise(pl.lit("up")))
        .agg(
            pl.col("messages").sum(),
            pl.col("message").first(),
            first_ns=start.min(),
            ended_ns=pl.col("flow_end_ns").max(),
            interval=pl.when(several).then((start.max() - start.min()) / (pl.col("messages").sum() - 1)),
        )
        .pivot("way", on_columns=["down", "up"], index=["link", "job_id", "end_ns"])
    )
