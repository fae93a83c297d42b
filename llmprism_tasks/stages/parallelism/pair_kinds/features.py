"""What each stream does in each step, and by how much it misses what comes back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.numerics import asof, ragged, robust
from llmprism_tasks.numerics.grouped_sort import Groups
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.settings import RhythmSettings, Settings
from llmprism_tasks.stages.parallelism.kernels import nearest_reply, recurring_sizes
from llmprism_tasks.stages.parallelism.kernels.recurring_sizes import Sizes
from llmprism_tasks.stages.step_division.periodicity import PAIR, WHOLE_PAIR
from llmprism_tasks.stages.traffic import nic_pairs, size_classes
from llmprism_tasks.stages.traffic.kernels import pair_sums
from llmprism_tasks.stages.traffic.opposite import log_ratio, opposite, same_size


class Records(NamedTuple):
    """Records of pairs step by step; arrays of shape (records,), in order of time: pair i has `offsets[i]` to
    `offsets[i + 1]`."""

    offsets: Integers
    pair: Groups
    step: Integers
    start: Integers
    bytes_: Integers
    sizes: Sizes


class Streams(NamedTuple):
    """Streams: pairs as a whole, or their records of one size; and what each does in its steps.

    Attributes
    ----------
    order : shape (records,), their places, the records of one stream after another
    offsets : shape (steps + 1,): where the records of a stream's step begin
    stream_offsets : shape (streams + 1,): where the steps of a stream begin
    steps : a row per stream's step: `pair`, `size_class`, `step`, `records`, `stream_bytes`, `size`, `first_ns`,
        `span_ns`, `fresh`
    streams : a row per stream: `pair`, `stream` (its place), `steps` (how many), `typical` (bytes of a step), `fresh`
    """

    order: Integers
    offsets: Integers
    stream_offsets: Integers
    steps: pl.DataFrame
    streams: pl.DataFrame


def stream_steps(flows: pl.DataFrame, pairs: pl.DataFrame, periods: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Describe what each stream does in each step.

    Parameters
    ----------
    flows : bulk flows with `pair` and `step`, in the order of `pair`, within it of time
    pairs : as `with_back` returns
    periods : `job_id`, `period_ns`

    Returns
    -------
    a row per pair and step (`size_class` -1), and after them one per size that recurs in most of the pair's steps,
    stream by stream, each in order of steps: `pair`, `back`, `size_class`, `step`, `within` (the row of the pair as a
    whole), `records`, `stream_bytes`, `size` (median, bytes), `first_ns` (first start), `spread` (from there to the
    last start, a ratio of the period), `fresh` (ratio of records whose size is not met in most other steps),
    `distinct` (sizes), `share` (of the pair's bytes), `period_ns`, `job_steps` (the job's steps), and `first_missed`,
    `last_missed`: by how much the step's first and last record miss those that come back, in ns (-1 where nothing alike
    does), `first_around`, `last_around`: the same, with what is counted to the step before or after, and
    `first_mutual`, `last_mutual`: whether each of them is also the nearest to the one that is nearest to it
    """
    records = _records(flows, settings.rhythm.same_size)
    of_pairs = np.full(records.offsets.size - 1, WHOLE_PAIR)
    whole = _describe_streams(records, np.arange(records.pair.size), records.offsets, of_pairs)
    order, of_sizes = records.sizes.order, records.sizes.offsets
    parts = _describe_streams(records, order, of_sizes, records.sizes.classes[order[of_sizes[:-1]]])
    varies = pl.col("fresh") >= settings.parallelism.expert_sizes
    present = pl.col("steps") >= settings.parallelism.least_presence * pl.col("pair_steps")
    varying = whole.streams.select(varies.alias("answers"))["answers"]
    recurring = parts.streams.join(
        whole.streams.select("pair", pair_steps="steps"), on="pair", maintain_order="left"
    ).select(answers=present & ~varies)["answers"]
    # Where sizes recur, the pair as a whole answers nothing: what goes and what comes may be different tensors.
    wholes = _with_reply_distances(records, whole, varying, pairs, settings.rhythm).with_columns(
        distinct=ragged.distinct(records.sizes.classes, whole.offsets), within=np.arange(whole.steps.height)
    )
    recurrent = _with_reply_distances(records, parts, recurring, pairs, settings.rhythm).with_columns(
        distinct=pl.lit(1, pl.Int64), within=_whole_pair_rows(parts, whole)
    )
    known = _pair_properties(whole, pairs, periods)
    wholes, recurrent = (
        _with_ratios(sent, steps, whole, known) for sent, steps in ((whole, wholes), (parts, recurrent))
    )
    recur = np.repeat(recurring.to_numpy(), np.diff(parts.stream_offsets))
    return pl.concat([wholes, recurrent.filter(pl.Series(recur))])


def with_back(pairs: pl.DataFrame) -> pl.DataFrame:
    """Add to pairs (`pair`, `job_id`, `src_addr`, `dst_addr`) the number of the pair the other way round, as `back`."""
    back = opposite(pairs, "pair", key=("job_id",)).rename({"back_pair": "back"})
    return pairs.join(back, on=["job_id", *PAIR], how="left")


def _records(flows: pl.DataFrame, same_size: float) -> Records:
    flows = size_classes.join_early_records(flows.select("pair", "step", "flow_start_ns", "bytes"), same_size)
    flows = nic_pairs.step_by_step(flows)
    pair, step, start, bytes_ = (flows[name].to_numpy() for name in ("pair", "step", "flow_start_ns", "bytes"))
    offsets = nic_pairs.starts_of_pairs(flows)
    return Records(offsets, pair, step, start, bytes_, recurring_sizes.sizes(bytes_, step, offsets, same_size))


def _describe_streams(records: Records, order: Integers, offsets: Integers, size_class: Integers) -> Streams:
    """Describe streams.

    Parameters
    ----------
    order : shape (records,), their places stream by stream, each in order of time
    offsets : shape (streams + 1,), where each of the streams begins
    size_class : shape (streams,)
    """
    found = pair_sums.tally_steps(order, offsets, records.step, records.bytes_, records.sizes.fresh)
    counts, several = np.diff(found.offsets), np.diff(found.series)
    steps = pl.DataFrame(
        {
            "pair": records.pair[found.first],
            "size_class": np.repeat(size_class, several),
            "step": records.step[found.first],
            "records": counts,
            "stream_bytes": found.total,
            "size": pair_sums.medians(order, found.offsets[:-1], found.offsets[1:], records.bytes_),
            "first_ns": records.start[found.first],
            "span_ns": records.start[found.last] - records.start[found.first],
            "fresh": found.fresh / counts,
        }
    )
    streams = pl.DataFrame(
        {
            "pair": records.pair[order[offsets[:-1]]],
            "stream": np.arange(several.size),
            "steps": several,
            "typical": robust.medians(found.total.astype(np.float64), found.series),
            "fresh": ragged.sums(found.fresh, found.series) / np.diff(offsets),
        }
    )
    return Streams(order, found.offsets, found.series, steps, streams)


def _whole_pair_rows(parts: Streams, whole: Streams) -> Integers:
    """Return for each step of a part the place of the same step of its pair as a whole."""
    at = np.searchsorted(whole.streams["pair"].to_numpy(), parts.streams["pair"].to_numpy())
    step, steps = (streams.steps["step"].to_numpy() for streams in (parts, whole))
    first = whole.stream_offsets
    return asof.first_from(step, parts.stream_offsets, steps, first[:-1][at], first[1:][at])


def _with_reply_distances(
    records: Records, sent: Streams, answering: pl.Series, pairs: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Return the steps of streams, with by how much the first and the last record of each miss what comes back.

    Only what `answering` marks is compared, and with what has the same size and typically about as many bytes a step:
    of the first and the last step the data may hold one direction alone.
    """
    chosen = sent.streams.filter(answering)
    bounds = sent.offsets[sent.stream_offsets]
    lows, highs = (ends[chosen["stream"].to_numpy()] for ends in (bounds[:-1], bounds[1:]))
    chosen = chosen.with_columns(size=pair_sums.medians(sent.order, lows, highs, records.bytes_)).join(
        pairs.select("pair", "back"), on="pair"
    )
    back = chosen.select(back="pair", answer="stream", back_size="size", back_typical="typical")
    likest = (
        chosen.join(back, on="back")
        .with_columns(off=log_ratio("typical", "back_typical"))
        .filter(same_size("size", "back_size", settings.same_size), pl.col("off") <= settings.answer_bytes)
        .sort("stream", "off", "answer")
        .unique("stream", keep="first")
    )
    answer_of = np.full(sent.streams.height, -1, dtype=np.int64)
    answer_of[likest["stream"].to_numpy()] = likest["answer"].to_numpy()
    ends = nearest_reply.reply_distances(
        records.start[sent.order], sent.steps["step"].to_numpy(), sent.offsets, sent.stream_offsets, answer_of
    )
    return sent.steps.with_columns(
        first_missed=pl.Series(ends.missed[:, 0]),
        last_missed=pl.Series(ends.missed[:, 1]),
        first_around=pl.Series(ends.around[:, 0]),
        last_around=pl.Series(ends.around[:, 1]),
        first_mutual=pl.Series(ends.mutual[:, 0]),
        last_mutual=pl.Series(ends.mutual[:, 1]),
    )


def _pair_properties(whole: Streams, pairs: pl.DataFrame, periods: pl.DataFrame) -> pl.DataFrame:
    """Return what is known of pairs: `pair`, `back`, `period_ns` and `job_steps` (of their job)."""
    jobs = periods.with_row_index("job")
    known = pairs.select("pair", "job_id", "back").join(jobs, on="job_id").sort("pair")
    job = known["job"].to_numpy()
    step = whole.steps["step"].to_numpy()
    seen = np.zeros((jobs.height, step.max(initial=-1) + 1), np.bool_)
    seen[job[_pair_rows(whole, known)], step] = True
    return known.select("pair", "back", "period_ns", job_steps=seen.sum(axis=1)[job])


def _pair_rows(sent: Streams, known: pl.DataFrame) -> Integers:
    """Return for each stream's step the row of its pair, in the order of `pair`."""
    rows = np.searchsorted(known["pair"].to_numpy(), sent.streams["pair"].to_numpy())
    return np.repeat(rows, np.diff(sent.stream_offsets))


def _with_ratios(sent: Streams, steps: pl.DataFrame, whole: Streams, known: pl.DataFrame) -> pl.DataFrame:
    """Relate what streams do in a step to the period of their job, and to what their pair does."""
    of_pair = whole.steps["stream_bytes"].to_numpy()[steps["within"].to_numpy()]
    return (
        steps.with_columns(
            known.drop("pair")[_pair_rows(sent, known)], share=steps["stream_bytes"].to_numpy() / of_pair
        )
        .with_columns(spread=pl.col("span_ns") / pl.col("period_ns"))
        .drop("span_ns")
    )
