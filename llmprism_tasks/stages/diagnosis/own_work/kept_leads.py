"""Kept leads: whether a rank that comes early to one exchange is still early at the next one.

A rank that waits for the end of each exchange loses its lead there: all go on together. Where exchanges run beside
computing, it goes on at once and keeps its lead: DDP reduces the gradients of one bucket while it computes those of the
next (Li and others, "PyTorch Distributed", VLDB 2020, section 3.2.3); FSDP gathers the parameters of a layer while it
computes the one before (Zhao and others, "PyTorch FSDP", VLDB 2023, section 3.3). All its waits of a step are then the
same lead, which must not be added up.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import MAJORITY, THOUSANDFOLD_NATS, Flags, Integers
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_gaps import Exchanges
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import NicArrays


def kept_leads(found: Exchanges, flows: NicArrays) -> Integers:
    """Return with how long a lead endpoints began to compute for each exchange, ns: shape (exchanges,).

    That is how long they waited at the exchange before it in the same step, or 0 where such leads are not kept.

    An exchange is compared with that of the same place in the step before. If a rank waited longer at the exchange
    before it, and so had a longer lead, it has computed for less than before it came and waits longer again, both by as
    much, where leads are kept. Where they are not, neither has to do with its lead. What it computes also varies with
    its job's steps, and how long it waits with the slowest rank, so the mean of both tells more than each. In most
    comparisons most of the change must come back, more often than by chance. All four waits must be seen. Each place of
    a job's step is judged by itself, for parameters may be gathered ahead up to a bound, and all may wait for
    gradients; where its own comparisons do not decide, those of the whole step do. Waits that part a record are known
    best, and decide first. Where these are few, those within records do, too; the smaller half of their changes is
    mostly noise. The longest lead of a step is left out: who has it may send ahead before the exchange ends, which is
    not seen.
    """
    follows = np.zeros(found.step.size, np.bool_)
    follows[1:] = found.step[1:] == found.step[:-1]
    many = np.bincount(found.step, minlength=flows.steps.height)
    place = np.arange(found.step.size) - (np.cumsum(many) - many)[found.step]
    places = pl.DataFrame({"job_id": flows.steps["job_id"].gather(found.step), "place": place})
    same = _same_place(found.step, follows, many, flows.numbers.endpoints)
    waited = found.waited + _waited_within(found, flows)
    parted, every = (_votes(found, waits, places, *same) for waits in (found.waited, waited))
    every = every.filter(pl.col("longer") >= pl.col("longer").median().over("job_id"))
    known = places.with_columns(keeps=pl.lit(value=False))
    for votes in (every, parted):  # the later decides
        for by in (["job_id"], ["job_id", "place"]):
            known = known.update(_are_kept(votes, by), on=by)
    keeps = known["keeps"].to_numpy()
    lead = np.roll(waited, 1)
    return np.where(follows & keeps & (lead < _longest_of_step(found.step, waited)), lead, 0)


def _votes(found: Exchanges, waited: Integers, places: pl.DataFrame, now: Integers, before: Integers) -> pl.DataFrame:
    """Return the comparisons of exchanges with those of the same place in the step before: `job_id`, `place`, `kept`.

    Parameters
    ----------
    waited : shape (exchanges,): what counts as waiting, ns; 0 where it was not seen
    places : `job_id`, `place` of the exchanges
    now, before : as `_same_place` returns
    """
    waits = waited[np.stack([now - 1, before - 1, now, before])]
    longer, again = waits[0] - waits[1], waits[2] - waits[3]
    less = found.computed[before] - found.computed[now]
    seen = (waits > 0).all(axis=0) & (longer != 0)
    told = pl.Series((again + less)[seen] / 2 / longer[seen] > MAJORITY)
    return places.gather(now[seen]).with_columns(kept=told, longer=pl.Series(np.abs(longer[seen])))


def _longest_of_step(step: Integers, waited: Integers) -> Integers:
    """Return for each exchange the longest wait of its step."""
    longest = np.zeros(step.max(initial=0) + 1, np.int64)
    np.maximum.at(longest, step, waited)
    return longest[step]


def _waited_within(found: Exchanges, flows: NicArrays) -> Integers:
    """Return for how long exchanges lasted beyond what their bytes take, ns, at the best pace of their job.

    What was sent ahead by less than the collector's idle timeout is in one record with the rest.
    """
    job = flows.steps["job_id"].rank("dense").to_numpy()[found.step].astype(np.int64)
    pace = found.lasted / np.maximum(found.sizes, 1)
    best = np.full(job.max(initial=0) + 1, np.inf)
    np.minimum.at(best, job[found.sizes > 0], pace[found.sizes > 0])
    needed = np.where(found.sizes > 0, found.sizes * best[job], found.lasted)
    return np.maximum(found.lasted - needed, 0).astype(np.int64)


def _are_kept(kept: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return whether leads are kept, `keeps`, where the comparisons decide it: in most of them, beyond chance."""
    counted = kept.group_by(by).agg(pl.col("kept").sum().cast(pl.Int64), compared=pl.len().cast(pl.Int64))
    either = {True: pl.col("kept"), False: pl.col("compared") - pl.col("kept")}
    rare = math.exp(-THOUSANDFOLD_NATS)
    sure = [
        counted.filter(binomial.tail_bound(count, pl.col("compared"), pl.lit(MAJORITY)) <= rare).select(
            *by, keeps=pl.lit(value=keeps)
        )
        for keeps, count in either.items()
    ]
    return pl.concat(sure)


def _same_place(step: Integers, follows: Flags, many: Integers, endpoints: Integers) -> tuple[Integers, Integers]:
    """Return the exchanges that follow another one in their step, and those of the same place in the step before.

    Steps of one NIC with equally many exchanges are compared.

    Parameters
    ----------
    step, follows : shape (exchanges,)
    many, endpoints : shape (steps,): exchanges of each step, and the NIC whose step it is
    """
    alike = np.zeros(many.size, np.bool_)
    alike[1:] = (many[1:] == many[:-1]) & (endpoints[1:] == endpoints[:-1])
    now = np.flatnonzero(follows & alike[step])
    return now, now - many[step[now]]
