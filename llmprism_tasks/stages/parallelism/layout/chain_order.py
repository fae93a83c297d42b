"""The order of a pipeline's stages, by which direction is ahead of the other.

Stages that are neighbours exchange as many activations as gradients, and in 1F1B each stage but the last has sent on
several activations before the first gradient comes back. From then on to the end of the step activations stay ahead,
whichever stage is slow: that tells their direction where silences do not. It does not in GPipe, where each direction
waits for all of the other, and of two stages.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import grouped_sort, ragged
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.pair_graph import ENDS

NODE = ["job_id", "node"]
PIPELINE = ["job_id", "pipeline"]

LEAST_LEAD = 0.05
"""How far ahead, as a ratio of the greatest lead, a direction must typically be beyond half: in GPipe it is 0, in 1F1B
with four stages and no more micro-batches 0.07."""


def in_lead(pair: Integers, step: Integers, start: Integers, links: pl.DataFrame) -> pl.DataFrame:
    """Number the nodes of pipelines from the first stage: `job_id`, `node`, `pipeline`, `place`, `size`.

    Those only that are lines of three stages or more, and in which one direction is clearly ahead.

    Parameters
    ----------
    pair, step, start : of each message
    links : `pair`, `job_id`, `src_addr`, `dst_addr` (nodes)
    """
    hops = _hops(links)
    along = number_line_nodes(hops)
    ahead = _typical_leads(pair, step, start, hops)
    for end in ("low", "high"):
        node = along.select(*PIPELINE, "size", **{end: "node", f"{end}_place": "place"})
        ahead = ahead.join(node, on=["job_id", end, *(["pipeline", "size"] if end == "high" else [])])
    down = pl.col("high_place") > pl.col("low_place")
    leads = ahead.group_by(PIPELINE).agg(lead=pl.when(down).then("ahead").otherwise(-pl.col("ahead")).mean())
    told = along.join(leads.filter(pl.col("lead").abs() >= LEAST_LEAD), on=PIPELINE)
    place = pl.when(pl.col("lead") > 0).then("place").otherwise(pl.col("size") - 1 - pl.col("place"))
    return told.select(*NODE, "pipeline", place=place, size="size")


def _hops(links: pl.DataFrame) -> pl.DataFrame:
    """Return the hop of each pair, whichever way it sends: `pair`, `hop`, `job_id`, `low`, `high`, `up` (1 or -1)."""
    low, high = (of(*ENDS) for of in (pl.min_horizontal, pl.max_horizontal))
    up = pl.when(pl.col("src_addr") == low).then(1).otherwise(-1)
    hops = links.select("pair", "job_id", low=low, high=high, up=up)
    return hops.with_columns(hop=pl.struct("job_id", "low", "high").rank("dense").cast(pl.Int64))


def _typical_leads(pair: Integers, step: Integers, start: Integers, hops: pl.DataFrame) -> pl.DataFrame:
    """Return how far the messages from low to high are typically ahead of those from high to low, beyond half of the
    greatest lead of a step: `job_id`, `low`, `high`, `ahead` (-0.5 to 0.5)."""
    of_pair = hops.sort("pair").with_columns(rank=pl.int_range(pl.len()).over("hop"))
    hop_of, rank_of, up = (of_pair[name].to_numpy() for name in ("hop", "rank", "up"))
    ways = np.zeros((hop_of.max(initial=0) + 1, rank_of.max(initial=0) + 1), np.int64)
    ways[hop_of, rank_of] = up
    runs, steps = ragged.of_ascending(pair), int(step.max(initial=0)) + 1
    at = np.searchsorted(of_pair["pair"].to_numpy(), pair[runs[:-1]])
    hop, rank = (np.repeat(of[at], np.diff(runs)) for of in (hop_of, rank_of))
    # Of messages that start together, the first pair's is first.
    bits = ways.shape[1].bit_length()
    moments = (start - (start.min() if start.size else 0)) << bits | rank
    ordered, offsets = grouped_sort.ascending_times(hop * steps + step, ways.shape[0] * steps, moments)
    met = np.flatnonzero(np.diff(offsets))
    hop, offsets = met // steps, np.append(offsets[met], offsets[-1])
    way = ways[np.repeat(hop, np.diff(offsets)), ordered & ((1 << bits) - 1)]
    leads = _mean_leads(way, offsets)
    typical = pl.DataFrame({"hop": hop, "ahead": leads}).group_by("hop").agg(pl.col("ahead").median())
    return typical.join(hops.select("hop", "job_id", "low", "high").unique(), on="hop").drop("hop")


def _mean_leads(ways: Integers, offsets: Integers) -> Floats:
    """Return the mean lead of each segment, as a ratio of the way from its least to its greatest, less a half."""
    if offsets.size < 2:
        return np.zeros(0)
    lead = np.cumsum(ways)
    least, greatest = (of.reduceat(lead, offsets[:-1]) for of in (np.minimum, np.maximum))
    mean = np.add.reduceat(lead, offsets[:-1]) / np.diff(offsets)
    typical: Floats = (mean - least) / np.maximum(greatest - least, 1) - 0.5
    return np.where(greatest > least, typical, 0.0)


def number_line_nodes(hops: pl.DataFrame) -> pl.DataFrame:
    """Number the nodes of each line of three and more from one of its ends: `job_id`, `node`, `pipeline`, `place`,
    `size`.

    Parameters
    ----------
    hops : `job_id`, `low`, `high` (nodes)
    """
    sides = hops.select("job_id", "low", "high").unique()
    nodes = pair_graph.components(sides.rename(dict(zip(("low", "high"), ENDS, strict=True))))
    numbered = nodes.select("job_id", node="addr", number=pl.int_range(pl.len()))
    low, high = (
        sides.join(numbered, left_on=["job_id", end], right_on=NODE, maintain_order="left")["number"].to_numpy()
        for end in ("low", "high")
    )
    pipeline = nodes["component"].to_numpy()
    neighbours, size = np.bincount(np.append(low, high)), np.bincount(pipeline)[pipeline]
    ends, forks = (np.bincount(pipeline, which)[pipeline] for which in (neighbours == 1, neighbours > 2))
    lines = np.flatnonzero((size >= 3) & (ends == 2) & (forks == 0))
    place = np.full(nodes.height, -1)
    both = np.zeros(nodes.height, np.int64)  # the sum of a node's neighbours: less the one, it is the other
    np.add.at(both, np.append(low, high), np.append(high, low))
    starts = lines[neighbours[lines] == 1]
    at = starts[np.unique(pipeline[starts], return_index=True)[1]]
    came_from, reached = np.zeros_like(at), 0
    while at.size:
        place[at] = reached
        reached += 1
        left = size[at] > reached
        at, came_from = (both[at] - came_from)[left], at[left]
    return nodes.select("job_id", node="addr", pipeline="component", place=place, size=size)[lines]
