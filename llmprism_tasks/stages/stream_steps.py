"""What each stream does in each step, and by how much it misses what comes back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.methods import answers, recurrence, segments
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.settings import RhythmSettings, Settings
from llmprism_tasks.stages import sizes, traffic
from llmprism_tasks.stages.streams import PAIR, WHOLE


class Records(NamedTuple):
    """Records in steps; arrays of shape (records,). Those of a stream in a step lie together, in order of time."""

    pair: npt.NDArray[np.int32]
    size_class: Integers
    step: Integers
    start: Integers
    bytes_: Integers
    fresh: npt.NDArray[np.bool_]

    def at(self, places: Integers) -> Records:
        """Return the records at some places, in their order."""
        return Records(*(column[places] for column in self))  # type: ignore[arg-type]


class Streams(NamedTuple):
    """Streams: pairs as a whole, or their records of one size; and what each does in its steps.

    Attributes
    ----------
    starts : ns, shape (records,)
    offsets : shape (steps + 1,): where the records of a stream's step begin
    stream_offsets : shape (streams + 1,): where the steps of a stream begin
    steps : a row per stream's step: `pair`, `size_class`, `step`, `records`, `stream_bytes`, `size`, `first_ns`,
        `span_ns`, `fresh`
    streams : a row per stream: `pair`, `stream` (its place), `steps` (how many), `size`, `total` (bytes), `fresh`
    """

    starts: Integers
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
    a row per pair and step (`size_class` -1), and one per size that recurs in most of the pair's steps: `pair`, `back`,
    `size_class`, `step`, `records`, `stream_bytes`, `size` (median, bytes), `first_ns` (first start), `spread` (from
    there to the last start, a ratio of the period), `fresh` (ratio of records whose size is not met in most other
    steps), `distinct` (sizes), `share` (of the pair's bytes), `period_ns`, `job_steps` (the job's steps), and
    `first_missed`, `last_missed`: by how much the step's first and last record miss those that come back, a ratio of
    the period (NULL where nothing alike does), `first_around`, `last_around`: the same, with what is counted to the
    step before or after, and `first_mutual`, `last_mutual`: whether each of them is also the nearest to the one that is
    nearest to it
    """
    records, by_class = _records(flows, settings.rhythm.same_size)
    whole = _streams(records._replace(size_class=np.broadcast_to(np.int64(WHOLE), records.step.shape)))
    parts = _streams(records.at(by_class))
    whole_step = np.repeat(np.arange(whole.steps.height), np.diff(whole.offsets))[by_class][parts.offsets[:-1]]
    varies = pl.col("fresh") >= settings.parallelism.expert_sizes
    present = pl.col("steps") >= settings.parallelism.least_presence * pl.col("pair_steps")
    varying = whole.streams.select(varies.alias("answers"))["answers"]
    recurring = parts.streams.join(
        whole.streams.select("pair", pair_steps="steps"), on="pair", maintain_order="left"
    ).select(answers=present & ~varies)["answers"]
    # Where sizes recur, the pair as a whole answers nothing: what goes and what comes may be different tensors.
    wholes = _with_ends(whole, varying, pairs, settings.rhythm).with_columns(
        distinct=segments.distinct(records.size_class, whole.offsets), pair_bytes="stream_bytes"
    )
    recur = pl.Series(np.repeat(recurring.to_numpy(), np.diff(parts.stream_offsets)))
    recurrent = (
        _with_ends(parts, recurring, pairs, settings.rhythm)
        .with_columns(distinct=pl.lit(1, pl.Int64), pair_bytes=whole.steps["stream_bytes"].gather(whole_step))
        .filter(recur)
    )
    return _as_ratios(pl.concat([wholes, recurrent]), pairs, periods)


def with_back(pairs: pl.DataFrame) -> pl.DataFrame:
    """Add to pairs (`pair`, `job_id`, `src_addr`, `dst_addr`) the number of the pair the other way round, as `back`."""
    back = pairs.select("job_id", src_addr="dst_addr", dst_addr="src_addr", back="pair")
    return pairs.join(back, on=["job_id", *PAIR], how="left")


def _records(flows: pl.DataFrame, same_size: float) -> tuple[Records, Integers]:
    """Return the records of pairs step by step, and their places size by size."""
    flows = traffic.step_by_step(sizes.in_one_piece(flows.select("pair", "step", *traffic.TIMES), same_size))
    pair, step, start, bytes_ = (flows[name].to_numpy() for name in ("pair", "step", "flow_start_ns", "bytes"))
    found = recurrence.sizes(bytes_, step, traffic.starts_of_pairs(flows), same_size)
    return Records(pair, found.classes, step, start, bytes_, found.fresh), found.order


def _streams(records: Records) -> Streams:
    offsets = segments.bounds(records.pair, records.size_class, records.step)
    first, last = offsets[:-1], offsets[1:] - 1
    pair, size_class = records.pair[first], records.size_class[first]
    stream_offsets = segments.bounds(pair, size_class)
    steps = pl.DataFrame(
        {
            "pair": pair,
            "size_class": size_class,
            "step": records.step[first],
            "records": np.diff(offsets),
            "stream_bytes": segments.sums(records.bytes_, offsets),
            "size": segments.medians(records.bytes_, offsets),
            "first_ns": records.start[first],
            "span_ns": records.start[last] - records.start[first],
            "fresh": segments.sums(records.fresh, offsets) / np.diff(offsets),
        }
    )
    of_stream = offsets[stream_offsets]
    streams = pl.DataFrame(
        {
            "pair": pair[stream_offsets[:-1]],
            "stream": np.arange(stream_offsets.size - 1),
            "steps": np.diff(stream_offsets),
            "size": segments.medians(records.bytes_, of_stream),
            "total": segments.sums(records.bytes_, of_stream),
            "fresh": segments.sums(records.fresh, of_stream) / np.diff(of_stream),
        }
    )
    return Streams(records.start, offsets, stream_offsets, steps, streams)


def _with_ends(sent: Streams, answering: pl.Series, pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the steps of streams, with by how much the first and the last record of each miss what comes back.

    Only what `answering` marks is compared, and with what has the same size and altogether about as many bytes.
    """
    same_size = (pl.col("size") / pl.col("back_size") - 1).abs() <= settings.same_size
    off = (pl.col("total") / pl.col("back_total")).log().abs()
    chosen = sent.streams.filter(answering).join(pairs.select("pair", "back"), on="pair")
    back = chosen.select(back="pair", answer="stream", back_size="size", back_total="total")
    likest = (
        chosen.join(back, on="back")
        .with_columns(off=off)
        .filter(same_size, pl.col("off") <= settings.answer_bytes)
        .sort("stream", "off", "answer")
        .unique("stream", keep="first")
    )
    answer_of = np.full(sent.streams.height, -1, dtype=np.int64)
    answer_of[likest["stream"].to_numpy()] = likest["answer"].to_numpy()
    ends = answers.of_ends(sent.starts, sent.steps["step"].to_numpy(), sent.offsets, sent.stream_offsets, answer_of)
    return sent.steps.with_columns(
        first_missed=pl.Series(ends.missed[:, 0]),
        last_missed=pl.Series(ends.missed[:, 1]),
        first_around=pl.Series(ends.around[:, 0]),
        last_around=pl.Series(ends.around[:, 1]),
        first_mutual=pl.Series(ends.mutual[:, 0]),
        last_mutual=pl.Series(ends.mutual[:, 1]),
    )


def _as_ratios(steps: pl.DataFrame, pairs: pl.DataFrame, periods: pl.DataFrame) -> pl.DataFrame:
    """Relate what streams do in a step to the period of their job, and to what their pair does."""
    known = pairs.join(periods, on="job_id")
    missed = pl.col("first_missed", "last_missed", "first_around", "last_around")
    return (
        steps.join(known, on="pair", maintain_order="left")
        .with_columns(
            pl.when(missed >= 0).then(missed / pl.col("period_ns")),
            spread=pl.col("span_ns") / pl.col("period_ns"),
            share=pl.col("stream_bytes") / pl.col("pair_bytes"),
            job_steps=pl.col("step").n_unique().over("job_id"),
        )
        .drop("span_ns", "pair_bytes", "job_id", *PAIR)
    )
