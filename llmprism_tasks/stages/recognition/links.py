"""Links: which pairs of NICs work together, and which just happen to have sent each other something.

What a job sends returns with every step, and it comes back: rings close, pipelines are answered. Chatter is small
beside it, a copy goes one way and once. So a pair that keeps a rhythm links its NICs; other pairs do among NICs that
have no rhythm at all (yet), or if they close a circuit and go on. A copy on its own is nobody's work.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.numerics.graphs import strong_components
from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import RecognitionSettings
from llmprism_tasks.stages.step_division.groups.templates.levels import NEARLY_ALL
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.step_division.periodicity import PAIR, WHOLE_PAIR
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.both_ways import both_ways
from llmprism_tasks.stages.traffic.clusters import addresses, connected_nics, numbered_ends


def weighed(rhythms: pl.DataFrame, end_ns: int, settings: RecognitionSettings) -> pl.DataFrame:
    """Describe the pairs that are not negligible.

    Parameters
    ----------
    rhythms : as `streams.stream_rhythms` returns
    end_ns : up to when flows could have been seen

    Returns
    -------
    `pair`, `src_addr`, `dst_addr`, `bytes`, `flows`, `first_ns`, `last_ns`; `weight` (the pair's mean rate since it
    began over that which either end moves both ways, the smaller ratio of the two); `period_ns` and `bursts` (of the
    pair, or of its part with most bursts; NULL without a period); `regular` (whether it has been seen often enough to
    be more than chance, and lies on a circuit)
    """
    pairs = rhythms.filter(pl.col("size_class") == WHOLE_PAIR).select(
        "pair", *PAIR, "bytes", "flows", "first_ns", "last_ns"
    )
    periodic = (
        rhythms.drop_nulls("period_ns")
        .sort("pair", "bursts", "size_class")
        .group_by("pair", maintain_order=True)
        .agg(pl.col("period_ns", "bursts").last())
    )
    age = pl.max_horizontal(end_ns - pl.col("first_ns"), pl.lit(int(settings.settling_s * NANOSECONDS_PER_SECOND)))
    pairs = pairs.with_columns(rate=pl.col("bytes") / age)
    kept = pairs.with_columns(weight=weights(pairs, "rate")).filter(pl.col("weight") >= settings.negligible)
    often = (pl.col("bursts") >= settings.regular_bursts).fill_null(value=False)
    return (
        kept.join(periodic, on="pair", how="left", maintain_order="left")
        .with_columns(regular=often & on_circuit(kept))
        .drop("rate")
    )


def weights(pairs: pl.DataFrame, moved: str) -> pl.Series:
    """Return what each pair moves, a column of pairs, over that which either end moves both ways, the smaller ratio."""
    return pairs[moved] / both_ways(*numbered_ends(pairs, addresses(pairs)), pairs[moved].to_numpy())


def on_circuit(pairs: pl.DataFrame) -> pl.Series:
    """Say of each pair whether what it sends can come back to its sender, over whichever pairs."""
    addrs = addresses(pairs)
    source, target = numbered_ends(pairs, addrs)
    labels = strong_components(source, target, addrs.len())
    return pl.Series(labels[source] == labels[target], dtype=pl.Boolean)


def plain(pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the pairs that link by themselves: regular ones, and those between NICs that have no regular pair."""
    regular = by_end(pairs.filter("regular"), "regular")["addr"].unique().implode()
    free = ~pl.any_horizontal(pl.col(end).is_in(regular) for end in PAIR)
    return pairs.filter(pl.col("regular") | free)


def on_ring(pairs: pl.DataFrame, same_bytes: float) -> pl.Series:
    """Say of each pair whether what it sends can come back to its sender over pairs that move as many bytes.

    Parameters
    ----------
    same_bytes : logarithm of the ratio by which the bytes of such pairs may differ
    """
    found = pl.repeat(value=False, n=pairs.height, dtype=pl.Boolean, eager=True)
    for of_size in _of_sizes(pairs, same_bytes):
        found |= on_circuit(of_size)
    return found


def _of_sizes(pairs: pl.DataFrame, same_bytes: float) -> list[pl.DataFrame]:
    """Return pairs twice, with other NICs for each class of bytes: those that are nearly the same may lie on both sides
    of a class's edge, and then they do not with the other classes."""
    sizes = [
        (pl.col("bytes").log() / (2 * same_bytes) + shift).floor().cast(pl.Int64).cast(pl.String)
        for shift in (0.0, 0.5)
    ]
    return [pairs.with_columns(pl.col(end).cast(pl.String) + " " + size for end in PAIR) for size in sizes]


def closing(pairs: pl.DataFrame, flows: pl.DataFrame, end_ns: int, same_bytes: float) -> pl.DataFrame:
    """Keep the other pairs that, together, close circuits between the clusters that plain pairs make.

    They count if they carry most of what their NICs send, have a rhythm, if a short one, or go on: they send in most
    turns of their clusters' rhythm since they began. They also do if they make rings that work in unison: where links
    turn with each micro-batch, gradients come once in many turns. Through a cluster there is always a way back. So a
    pair without a rhythm must be part of a circuit of pairs like it, as gradients seen once are, or link two clusters
    and go on. Copies do neither. Of the hops of one ring some may show a rhythm while others do not yet: these are like
    it if they move as many bytes.

    Parameters
    ----------
    pairs : as `weighed` returns
    flows : the flows of these pairs
    end_ns : up to when they could have been seen
    same_bytes : as `on_ring` takes it
    """
    linking = plain(pairs)
    rest = pairs.join(linking, on="pair", how="anti")
    if rest.is_empty():
        return rest
    named = connected_nics(pairs, linking)
    turns = (
        by_end(linking.filter("regular"), "period_ns")
        .join(named, on="addr")
        .group_by("cluster")
        .agg(turn_ns=pl.col("period_ns").median())
    )
    places = named.join(turns, on="cluster", how="left")
    for end in PAIR:
        rest = rest.join(places.rename(lambda name, end=end: end if name == "addr" else f"{end}_{name}"), on=end)  # type: ignore[misc]
    rest = rest.with_columns(turn_ns=pl.max_horizontal(f"{end}_turn_ns" for end in PAIR))
    # Two bursts are one interval, as chatter has it, too: that is no rhythm that could link clusters.
    apart = pl.col("src_addr_cluster") != pl.col("dst_addr_cluster")
    rhythmic = (pl.col("bursts") >= pl.when(apart).then(FEW_BURSTS).otherwise(0)).fill_null(value=False)
    goes_on = pl.col("presence") >= MAJORITY
    unison = pl.col("pair").is_in(_in_unison(rest, flows, same_bytes).implode())
    lasting = rest.join(_presence(rest, flows, end_ns), on="pair").filter(
        (pl.col("weight") >= MAJORITY) | rhythmic | goes_on | unison
    )
    source, target = (lasting[f"{end}_cluster"].to_numpy() for end in PAIR)
    labels = strong_components(source, target, named.height)
    closes = pl.Series(labels[source] == labels[target], dtype=pl.Boolean)
    hops = on_ring(pl.concat([one.select(*PAIR, "bytes") for one in (lasting, linking)]), same_bytes)
    comes_back = rhythmic | (goes_on & apart) | on_circuit(lasting) | hops.head(lasting.height)
    return lasting.filter(closes & comes_back).select(pairs.columns)


def _presence(pairs: pl.DataFrame, flows: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """Return in which share of the turns after its first each pair sends its part: `pair`, `presence`; 0 of one turn.

    Its part is half of what it would send in a turn if all were alike. Chatter, most of which is small, sends now and
    then more than in all other turns together. The first turn is one in which it sends, whatever it is.
    """
    turn = ((pl.col("flow_start_ns") - pl.col("first_ns")) / pl.col("turn_ns")).floor()
    possible = ((pl.lit(end_ns) - pl.col("first_ns")) / pl.col("turn_ns")).ceil()
    known = pairs.select("pair", "turn_ns", "first_ns", possible=possible)
    sent = nic_pairs.flows_of_pairs(flows.select("pair", "flow_start_ns", "bytes"), known)
    by_turn = sent.group_by("pair", turn=turn).agg(pl.col("bytes").sum(), pl.col("possible").first())
    its_part = pl.col("bytes") * pl.col("possible") >= MAJORITY * pl.col("bytes").sum()
    return by_turn.group_by("pair").agg(presence=(its_part.sum() - 1) / (pl.col("possible").first() - 1).clip(1))


def _in_unison(pairs: pl.DataFrame, flows: pl.DataFrame, same_bytes: float) -> pl.Series:
    """Return the pairs of rings whose hops all send as many bytes whenever one does, and not just once.

    That is together until all are silent for longer than a turn of their clusters' rhythm.

    Parameters
    ----------
    pairs : with `turn_ns`
    """
    found = [pairs["pair"].clear()]
    silent = pl.col("flow_start_ns") - pl.col("flow_end_ns").cum_max().shift() > pl.col("turn_ns")
    for of_size in _of_sizes(pairs, same_bytes):
        addrs = addresses(of_size)
        source, target = numbered_ends(of_size, addrs)
        ring = strong_components(source, target, addrs.len())
        hops = of_size.select("pair", "turn_ns", ring=ring[source]).filter(pl.Series(ring[source] == ring[target]))
        hops = hops.with_columns(hops=pl.len().over("ring"))
        sent = nic_pairs.flows_of_pairs(flows.select("pair", *nic_pairs.TIMES), hops).sort("ring", "flow_start_ns")
        bursts = (
            sent.group_by("ring", "pair", burst=silent.fill_null(value=True).cum_sum().over("ring"))
            .agg(pl.col("hops").first(), pl.col("bytes").sum())
            .group_by("ring", "burst")
            .agg(all=pl.len() == pl.col("hops").first(), ratio=pl.col("bytes").max() / pl.col("bytes").min())
        )
        all_send = pl.col("all") & (pl.col("ratio").log() <= same_bytes)
        rings = bursts.group_by("ring").agg(alike=all_send.mean(), bursts=all_send.sum())
        kept = rings.filter(pl.col("alike") >= NEARLY_ALL, pl.col("bursts") > 1)
        found.append(hops.join(kept, on="ring", how="semi")["pair"])
    return pl.concat(found)


def still_together(pairs: pl.DataFrame, flows: pl.DataFrame, settings: RecognitionSettings) -> pl.DataFrame:
    """Keep the pairs of NICs that have not fallen silent while most of their cluster went on.

    A pair has, if it has been silent for much longer than ever before; of a host that was replaced, all have. What most
    pairs of a cluster do says whether it goes on, for a message of chatter may be the last of a pair. And a pair whose
    NICs both have begun with others since it fell silent was of a job that has ended: each may be in another one now.

    Parameters
    ----------
    pairs : linking pairs, as `weighed` describes them
    flows : the flows of these pairs
    """
    placed = pairs.join(connected_nics(pairs, pairs), left_on="src_addr", right_on="addr")
    most_ns = pl.col("last_ns").quantile(1 - MAJORITY, "higher").over("cluster")
    silence = most_ns - pl.col("last_ns")
    suspects = placed.with_columns(silence=silence).filter(
        "regular", pl.col("silence") > settings.longest_silence * pl.col("period_ns")
    )
    if suspects.is_empty():
        return pairs
    sent = nic_pairs.flows_of_pairs(flows.select("pair", "flow_start_ns"), suspects.select("pair"))
    longest = sent.group_by("pair").agg(longest=pl.col("flow_start_ns").diff().max())
    over = suspects.join(longest, on="pair").filter(pl.col("silence") > settings.longest_silence * pl.col("longest"))
    if over.is_empty():
        return pairs
    ends = (
        by_end(placed, "cluster")
        .unique()
        .join(
            by_end(placed.join(over, on="pair", how="anti"), "cluster").unique().with_columns(works=pl.lit(value=True)),
            on=["addr", "cluster"],
            how="left",
        )
    )
    works = ends.with_columns(pl.col("works").fill_null(value=False)).with_columns(
        most=pl.col("works").mean().over("cluster") >= MAJORITY
    )
    gone = works.filter(~pl.col("works") & pl.col("most"))["addr"].implode()
    left = pairs.filter(~pl.any_horizontal(pl.col(end).is_in(gone) for end in PAIR))
    begun = by_end(placed.join(over, on="pair", how="anti"), "first_ns").group_by("addr").agg(pl.col("first_ns").max())
    ended = over.select("pair", *PAIR, "last_ns")
    for end in PAIR:
        ended = ended.join(begun, left_on=[end], right_on="addr").filter(pl.col("first_ns") > pl.col("last_ns"))
        ended = ended.drop("first_ns")
    return left.join(ended, on="pair", how="anti", maintain_order="left")


def usual_silences(rhythms: pl.DataFrame, quiet: pl.DataFrame, flows: pl.DataFrame) -> pl.DataFrame:
    """Return the usual silence of pairs: half of the time that they were silent lies in silences as long or longer.

    A period may be that of buckets. The usual silence of gradients that were sent once, in many buckets, is the step
    before them: a pair is silent, too, from when both of its NICs are at work until its first transfer.

    Parameters
    ----------
    rhythms : of all pairs, as `stream_rhythms` returns
    quiet : those of the pairs that are asked about
    flows : of all pairs

    Returns
    -------
    `pair`, `silence_ns`; without pairs that were never silent
    """
    begins = by_end(rhythms, "first_ns").group_by("addr").agg(pl.col("first_ns").min())
    begun = pl.max_horizontal(pl.col(end).replace_strict(begins["addr"], begins["first_ns"]) for end in PAIR)
    asked = quiet.select("pair", begun=begun).unique(maintain_order=True)
    sent = nic_pairs.flows_of_pairs(flows.select("pair", "flow_start_ns", "flow_end_ns"), asked)
    until = pl.col("flow_end_ns").cum_max().shift().over("pair")
    silent = (
        sent.select("pair", silence_ns=pl.col("flow_start_ns") - pl.coalesce(until, "begun"))
        .filter(pl.col("silence_ns") > 0)
        .sort("pair", "silence_ns")
    )
    upto, all_ns = pl.col("silence_ns").cum_sum().over("pair"), pl.col("silence_ns").sum().over("pair")
    return silent.filter(upto >= MAJORITY * all_ns).group_by("pair", maintain_order=True).first()


def passed_on(pairs: pl.DataFrame, bulk: pl.DataFrame) -> pl.DataFrame:
    """Keep the pairs of clusters of which a NIC both sends and receives: in training all do, in a copy nobody does.

    Parameters
    ----------
    pairs : those that link NICs
    bulk : all flows, look-back included, for what comes back to a NIC may have ended before
    """
    nics = connected_nics(pairs, pairs)
    of_src, of_dst = (nics.rename({"addr": end}) for end in PAIR)
    within = nic_pairs.pairs_of(bulk, PAIR).join(of_src, on="src_addr").join(of_dst, on=["dst_addr", "cluster"])
    passing = within.join(within, left_on="src_addr", right_on="dst_addr", how="semi").select("cluster").unique()
    kept = of_src.join(passing, on="cluster", how="semi")
    return pairs.join(kept, on="src_addr", how="semi", maintain_order="left")


def by_end(pairs: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return the columns of pairs twice, once for each end as `addr`."""
    return pl.concat([pairs.select(*columns, addr=pl.col(end)) for end in PAIR])
