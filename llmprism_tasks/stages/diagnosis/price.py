"""Price: the GPU-seconds that a job lost to a trouble, and those that a repair would give back.

What a job lost is what its steps took longer than usual, times its GPUs. What a repair gives back is told by a replay
of the steps' graph: once as it was, once with the subject's durations replaced by those of its peers, or by its own
from before. Both replays err alike, so their difference counts, not the one to what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from llmprism_tasks.stages import layout
from llmprism_tasks.stages.breakdown import Account, account
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.step_graph import MESSAGE, ROUND, WORK, StepGraph, step_graph

MOST_STEPS = 32
"""Steps of a window that are replayed; where there are more, these stand for them."""

MOST_FLOWS = 400_000
"""Flows that are replayed at most, so that a price takes seconds in the largest jobs: fewer steps stand for all."""

LEAST_STEPS = 2
"""Steps that are replayed however many flows they have."""

PAST_STEPS = 8
"""Healthy steps of the look-back that show what was usual: enough for a median that jitter does not move."""

NANOSECONDS = 1e9

COMPUTING = ("slow_compute", "straggler", "pipeline_imbalance", "stalls")
"""Kinds of trouble with a subject's own work; all others with what it carries."""

PRICES = {"lost_gpu_s": pl.Float64, "recoverable_gpu_s": pl.Float64}


def price(evidence: Evidence, diagnoses: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the diagnoses with `lost_gpu_s` and `recoverable_gpu_s`, both NULL where they are not known.

    Parameters
    ----------
    diagnoses : `job_id`, `kind`, `subject_type`, `subject`, `start_ns`, `end_ns`, and whatever else
    jobs : the window's: `job_id`, `tp`, `sharded`
    """
    lost, given_back = [], []
    for job_id, kind, subject_type, subject, start_ns, end_ns in diagnoses.select(
        "job_id", "kind", "subject_type", "subject", "start_ns", "end_ns"
    ).iter_rows():
        trouble = _Trouble(job_id, kind, subject_type, subject, max(start_ns, evidence.window.start_ns), end_ns)
        lost.append(_lost(trouble, evidence))
        given_back.append(_recoverable(trouble, evidence, jobs))
    return diagnoses.with_columns(
        lost_gpu_s=pl.Series(lost, dtype=pl.Float64), recoverable_gpu_s=pl.Series(given_back, dtype=pl.Float64)
    )


@dataclass(frozen=True)
class _Trouble:
    """A diagnosis, within its window."""

    job_id: str
    kind: str
    subject_type: str
    subject: str
    start_ns: int
    end_ns: int

    def of_job(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(pl.col("job_id") == self.job_id)

    @property
    def hit(self) -> pl.Expr:
        """Select the steps that it had a part in."""
        return (pl.col("end_ns") > self.start_ns) & (pl.col("start_ns") < self.end_ns)


def _lost(trouble: _Trouble, evidence: Evidence) -> float | None:
    """Return what the job's steps took longer than its usual step, times its GPUs.

    The usual step is the lower quartile of look-back and window: a healthy one, as long as the trouble has not lasted
    for most of it.
    """
    history = trouble.of_job(evidence.history).with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    usual = history["length"].quantile(0.25)
    if usual is None:
        return None
    longer = history.filter("current", trouble.hit).select((pl.col("length") - usual).clip(lower_bound=0).sum()).item()
    return float(longer) / NANOSECONDS * trouble.of_job(evidence.members).height


def _recoverable(trouble: _Trouble, evidence: Evidence, jobs: pl.DataFrame) -> float | None:
    """Return how much earlier the replay ends with the subject like its peers, times the job's GPUs."""
    steps = trouble.of_job(evidence.steps).with_columns(hit=trouble.hit & pl.col("current"))
    numbers = steps.filter("hit")["step_index"].unique().sort()
    if numbers.is_empty():
        return None
    flows = trouble.of_job(evidence.flows)
    affordable = MOST_FLOWS * steps["step_index"].n_unique() // max(flows.height, 1) // 2
    chosen = numbers.head(min(max(affordable, LEAST_STEPS), MOST_STEPS))
    past = _healthy_steps(steps)[: max(affordable, LEAST_STEPS)]
    known = steps.filter(pl.col("step_index").is_in([*chosen, *past]))
    members = trouble.of_job(evidence.members).join(evidence.groups, on=["job_id", "addr"], how="left")
    found = account(_of_steps(flows, known), known, jobs, members.rename({"component": "dp_group"}))
    graph = step_graph(found)
    repaired = _repaired(trouble, found, graph, members, jobs, since=int(numbers[0]))
    if repaired is None:
        return None
    measured = graph.operations["duration_ns"].cast(pl.Float64)
    before, after = (
        graph.step_ends(durations.to_numpy(), found.parts)
        .filter(pl.col("step_index").is_in(chosen.implode()))
        .select(pl.col("end_ns").max())
        .item()
        for durations in (measured, repaired)
    )
    saved: float = before - after
    return max(saved, 0.0) / NANOSECONDS * members.height * len(numbers) / len(chosen)


def _of_steps(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Leave out the flows that start in none of the steps, whoever's they are."""
    spans = steps.group_by("step_index").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
    until = spans.select("start_ns", until_ns=pl.col("end_ns").cum_max())
    return (
        flows.sort("flow_start_ns")
        .join_asof(until, left_on="flow_start_ns", right_on="start_ns", strategy="backward")
        .filter(pl.col("flow_start_ns") < pl.col("until_ns"))
        .drop("start_ns", "until_ns")
    )


def _healthy_steps(steps: pl.DataFrame) -> list[int]:
    """Return the steps before the trouble that are nearest to the lower quartile in length.

    Troubles are diagnosed in a window whose look-back may have them already, for all but a quarter of it.
    """
    lengths = (
        steps.filter(pl.col("step_index") < pl.col("step_index").filter("hit").min())
        .group_by("step_index")
        .agg(length=(pl.col("end_ns") - pl.col("start_ns")).median())
    )
    far = (pl.col("length") - pl.col("length").quantile(0.25)).abs()
    return lengths.sort(far, "step_index")["step_index"].head(PAST_STEPS).to_list()


def _repaired(
    trouble: _Trouble,
    found: Account,
    graph: StepGraph,
    members: pl.DataFrame,
    jobs: pl.DataFrame,
    *,
    since: int,
) -> pl.Series | None:
    """Return the durations of all operations, with the subject's like those of its peers; None where it has none."""
    described = _described(found, graph, members)
    computing = trouble.kind in COMPUTING
    theirs = _nics(trouble, members, jobs)
    if computing:
        mine = (pl.col("kind") == WORK) & pl.col("addr").is_in(_replica(theirs, found))
    else:
        carried = _carried(trouble, found, theirs)
        on = ["kind", "flow", "group", "round"]
        described = described.join(carried, on=on, how="left", nulls_equal=True)
        mine = pl.col("carried").fill_null(value=False)
    past = pl.col("step_index") < since
    marked = described.with_columns(mine=mine, past=past, troubled=mine & ~past)
    if not marked["troubled"].any():
        return None
    # Work has its place by what is exchanged after it. Where neighbours are late that may be another pass, never less.
    least = pl.min_horizontal(_healthy(), "duration_ns") if computing else _healthy()
    healthy = marked.with_columns(healthy_ns=pl.when("troubled").then(least))
    others = _not_held_up() if computing else pl.col("duration_ns")
    return healthy.sort("position").select(pl.coalesce("healthy_ns", others).cast(pl.Float64)).to_series()


def _healthy() -> pl.Expr:
    """Return how long an operation takes for the subject's peers, or took the subject itself before.

    Before gradients are reduced, peers may have waited for the subject unseen: there its own past counts first. Without
    one, the time until the first round tells, before which nobody has waited: who computes slowly comes as much later
    to it as to the last.
    """

    def of(who: pl.Expr, duration: str = "duration_ns") -> pl.Expr:
        return pl.col(duration).filter(who).median()

    peers, place = ~pl.col("mine"), ["kind", "place"]
    now, past = of(peers).over(*place, "step_index"), of(pl.col("mine") & pl.col("past")).over(place)
    before_rounds = pl.col("first_ns").is_not_null()
    first = pl.when(pl.col("first_ns") > 0).then("first_ns")
    by_first = pl.col("duration_ns") * of(peers, "first_ns").over(*place, "step_index") / first
    ever = of(peers).over(place)
    return pl.when(before_rounds).then(pl.coalesce(past, by_first, now, ever)).otherwise(pl.coalesce(now, past, ever))


def _not_held_up() -> pl.Expr:
    """Return how long the others' work before their gradients would have taken, had they not been held up meanwhile.

    As long as it took them before, or else as much of the subject's as of its time until the first round.
    """
    place = ["kind", "place"]
    past = pl.col("duration_ns").filter("past").median().over(*place, "addr")
    first = pl.when(pl.col("first_ns") > 0).then("first_ns")
    growth = (pl.col("duration_ns") / first).filter("troubled").median().over(*place, "step_index")
    usual = pl.when(pl.col("first_ns").is_not_null()).then(pl.coalesce(past, first * growth))
    # Rounds that part when their members are late are one when they are not, so that work and round go together.
    round_before = pl.col("duration_ns").filter("past").median().over(place)
    as_before = pl.coalesce(pl.when(~pl.col("past")).then(round_before), "duration_ns")
    return pl.when(pl.col("kind") == ROUND).then(as_before).otherwise(pl.min_horizontal("duration_ns", usual))


def _replica(theirs: list[str], found: Account) -> list[str]:
    """Return these NICs and those that share a pipeline with them.

    How long those work cannot be told from how long they wait for these.
    """
    linked = found.messages.filter(pl.col("kind") == "pp").select("job_id", src_addr="addr", dst_addr="peer").unique()
    if linked.is_empty():
        return theirs
    component = layout.components(linked)
    around = component.filter(pl.col("addr").is_in(theirs)).select("job_id", "component").unique()
    return [*theirs, *component.join(around, on=["job_id", "component"])["addr"]]


def _nics(trouble: _Trouble, members: pl.DataFrame, jobs: pl.DataFrame) -> list[str]:
    """Return the subject's NICs; those of one host and pp_stage that work in lock-step, tensor-parallel, are one."""
    subject = pl.lit(trouble.subject)
    chosen = {
        "addr": pl.col("addr") == subject,
        "host": pl.col("host") == subject,
        "pp_stage": pl.col("pp_stage").cast(pl.String) == subject,
        "dp_group": pl.col("component") == pl.col("component").filter(pl.col("addr") == subject).first(),
    }.get(trouble.subject_type)
    if chosen is None:
        return []
    theirs = members.filter(chosen)
    tp = trouble.of_job(jobs)["tp"].max()
    if trouble.subject_type == "addr" and trouble.kind in COMPUTING and (tp or 1) > 1:  # type: ignore[operator]
        theirs = members.join(theirs.select("host", "pp_stage"), on=["host", "pp_stage"], how="semi", nulls_equal=True)
    return theirs["addr"].to_list()


def _described(found: Account, graph: StepGraph, members: pl.DataFrame) -> pl.DataFrame:
    """Say of each operation whose it is, in which step, and what place in the step it has (`place`).

    Work has peers in the same pp_stage, before the same exchange; messages in those between the same pp_stages;
    rounds in those of other groups of the pp_stage.
    """
    parts = found.parts.select("part", "addr", "step_index", "pp_stage")
    stages = [pl.col("kind").first(), pl.col("stage").first(), pl.col("peer_pp_stage").first()]
    sent = (
        found.messages.filter("sends")
        .join(parts.select("part", stage="pp_stage"), on="part")
        .group_by("flow")
        .agg(
            sent_step=pl.col("step_index").first(),
            sent_place=pl.concat_str(stages, separator=" ", ignore_nulls=True),
        )
    )
    rounds = (
        found.blocks.join(parts, on="part")
        .group_by("group", "round")
        .agg(
            round_step=pl.col("step_index").first(),
            round_place=pl.concat_str(
                pl.col("pp_stage").first(), pl.col("does").first(), separator=" ", ignore_nulls=True
            ),
        )
    )
    work = pl.concat_str("pp_stage", "took", "order", separator=" ", ignore_nulls=True)
    return (
        graph.operations.select(
            "position", "kind", "duration_ns", "part", "flow", "group", "round", "took", "order", "first_ns"
        )
        .join(parts, on="part", how="left")
        .join(sent, on="flow", how="left")
        .join(rounds, on=["group", "round"], how="left")
        .with_columns(
            step_index=pl.coalesce("step_index", "sent_step", "round_step"),
            place=pl.when(pl.col("kind") == WORK).then(work).otherwise(pl.coalesce("sent_place", "round_place")),
        )
    )


def _carried(trouble: _Trouble, found: Account, theirs: list[str]) -> pl.DataFrame:
    """Return the messages and rounds that the subject carries: `kind`, `flow`, `group`, `round`, `carried`."""
    path = pl.col("switch_path")
    if trouble.subject_type == "switch":
        crosses = path.list.contains(trouble.subject)
    elif trouble.subject_type == "link":
        # "leaf - spine", or "leaf to spine" where one direction is meant
        one, other = trouble.subject.replace(" to ", " - ").split(" - ")
        crosses = path.list.contains(one) & path.list.contains(other)
    else:
        crosses = pl.col("addr").is_in(theirs)
    crossing = found.messages.filter(crosses.fill_null(value=False))
    messages = crossing.filter(pl.col("kind") != "dp").select("flow").unique()
    touched = crossing.filter(pl.col("kind") == "dp").select("part").unique()
    rounds = found.blocks.join(touched, on="part").select("group", "round").unique()
    return pl.concat(
        [messages.with_columns(kind=pl.lit(MESSAGE)), rounds.with_columns(kind=pl.lit(ROUND))], how="diagonal"
    ).with_columns(carried=pl.lit(value=True))
