"""Retries: packets that are sent again and again because nothing comes back. They show a path that is down.

A sender whose packet is not acknowledged sends it again and waits twice as long each time (RFC 6298, section 5.5).
Such packets are seen at the sender's switch, so the sender and its link are well: the receiver, or the path to it, is
not. A process that was stopped does not look so, for the kernel of its host goes on to acknowledge. Once the path is
back, the next try is answered and the connection goes on, so the record of that try may be larger than a packet.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.nic_pairs import PAIR
from llmprism_tasks.stages.traffic.opposite import opposite
from llmprism_tasks.stages.traffic.transport import connections

PACKET_BYTES = 9_216
"""Largest packet, bytes: jumbo frames of Ethernet, rounded up as switches have them."""

LEAST_TRIES = 3
"""Records of one size, one after the other, that are a retry: two waits, of which the second is twice the first."""

DOUBLED_WAITS = (1.8, 2.2)
"""Ratios of two waits that are twice as long, give or take the ticks of a timer: captured ones are 1.92 to 2.00."""

SHORTEST_NS = 200_000_000
"""Shortest wait before a retry, ns: TCP waits for 200 ms, and messages of a GPU follow each other as quickly by
themselves. Before that, a packet may be sent again once to probe (RFC 8985), after a time that is not doubled."""

RETRIES_SCHEMA = {"src_addr": pl.String, "dst_addr": pl.String, "since_ns": pl.Int64, "until_ns": pl.Int64}


def retried(flows: pl.DataFrame, most_chance: float, ports: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return tries in vain, three at a time: `src_addr`, `dst_addr`, `since_ns` (the first), `until_ns` (the third).

    The connection sent nothing else meanwhile, and nothing came back. Heartbeats and other packets that come at any
    time wait twice as long as before now and then. So more of what a receiver is sent must do so than chance explains.
    Sorted by pair and time.

    Parameters
    ----------
    flows : as `nic_pairs.numbered` returns, all flows of some time
    most_chance : chance at which waits of other packets to a receiver may be taken for tries
    ports : as in `transport.connections`
    """
    suspect = flows.filter((pl.col("bytes") <= PACKET_BYTES).any().over("pair"))
    # What is sent again is sent over one connection; others of the pair send what they like meanwhile.
    suspect = suspect.with_columns(connections(suspect, ports)).sort("connection", maintain_order=True)
    begin, size, before = pl.col("flow_start_ns"), pl.col("bytes"), pl.col("bytes").shift()
    alone = pl.col("connection") == pl.col("connection").shift(LEAST_TRIES - 1)
    waits = (
        suspect.with_columns(
            first_ns=begin.shift(LEAST_TRIES - 1),
            earlier_ns=begin.shift() - begin.shift(2),
            ratio=(begin - begin.shift()) / (begin.shift() - begin.shift(2)),
            goes_on=size > before,
            tried=alone & (before == size.shift(2)) & (before <= PACKET_BYTES) & (size >= before),
        )
        # What goes on sooner than it would be tried again does so for another reason.
        .filter(
            "tried", pl.col("earlier_ns") >= SHORTEST_NS, ~pl.col("goes_on") | (pl.col("ratio") >= DOUBLED_WAITS[0])
        )
        .with_columns(doubled=pl.col("ratio").is_between(*DOUBLED_WAITS))
        .rename({"flow_start_ns": "last_ns"})
    )
    tries = waits.filter("doubled").join(_tried_receivers(waits, most_chance), on="dst_addr", how="semi")
    if tries.is_empty():
        return pl.DataFrame(schema=RETRIES_SCHEMA)
    vain = nic_pairs.named(tries.select(*PAIR, since_ns="first_ns", until_ns="last_ns")).unique()
    answers = nic_pairs.named(flows.join(opposite(tries.select(PAIR).unique()), on=PAIR, how="semi"))
    back = opposite(answers.select(*PAIR, "flow_start_ns", "flow_end_ns"), "flow_start_ns", "flow_end_ns")
    answered = vain.join(back, on=PAIR).filter(
        pl.col("back_flow_start_ns") < pl.col("until_ns"), pl.col("back_flow_end_ns") > pl.col("since_ns")
    )
    return vain.join(answered, on=list(RETRIES_SCHEMA), how="anti").sort(list(RETRIES_SCHEMA))


def _tried_receivers(waits: pl.DataFrame, most_chance: float) -> pl.DataFrame:
    """Return `dst_addr`: to whom waits double more often than those between packets that come at any time.

    Of two such waits, the second is r times the first or more with a probability of 1 / (1 + r). What goes on counts
    only if it is that late, so its chance is larger. Trials whose chances differ are no likelier to succeed far more
    often than expected than as many of their mean chance (Hoeffding, 1956).

    Parameters
    ----------
    waits : `dst_addr`, whether each of its waits has `doubled`, and whether the connection then `goes_on`
    """
    longer = [1 / (1 + times) for times in DOUBLED_WAITS]
    chance = longer[0] - longer[1]
    of_wait = pl.when("goes_on").then(chance / longer[0]).otherwise(chance)
    each = waits.group_by("dst_addr").agg(pl.col("doubled").sum(), every=pl.len(), chance=of_wait.mean())
    figures = (each[name].to_list() for name in ("doubled", "every", "chance"))
    surely = [binomial.tail(*counts) <= most_chance for counts in zip(*figures, strict=True)]
    return each.filter(pl.Series(surely, dtype=pl.Boolean)).select("dst_addr")
