"""Counterfactual: how long a job's operations would have taken without a fault."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from llmprism_tasks.stages.diagnosis.cost.step_graph import MESSAGE, ROUND, WORK, StepGraph
from llmprism_tasks.stages.diagnosis.step_times.duration_model import WORTH_A_ROW
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.timeline.breakdown import Account

COMPUTE_KINDS = ("slow_compute", "straggler", "pipeline_imbalance")
"""Kinds of fault that lengthen a subject's own work; all other kinds lengthen the transfers that it carries."""


CODE_RADIX = 2**20
"""Above the number of stages, of an exchange's bits and of a step's gaps."""


@dataclass(frozen=True)
class Trouble:
    """A diagnosis, limited to its window."""

    job_id: str
    kind: str
    subject_type: str
    subject: str
    start_ns: int
    end_ns: int

    def of_job(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Select a table's rows of the faulty job."""
        return frame.filter(pl.col("job_id") == self.job_id)

    @property
    def hit(self) -> pl.Expr:
        """Select the steps that overlap the fault."""
        return (pl.col("end_ns") > self.start_ns) & (pl.col("start_ns") < self.end_ns)


def counterfactual_durations(
    trouble: Trouble,
    found: Account,
    graph: StepGraph,
    members: pl.DataFrame,
    jobs: pl.DataFrame,
    *,
    since: int,
) -> pl.Series | None:
    """Return the duration of every operation if the subject's took as long as those of its peers.

    Parameters
    ----------
    since : first `step_index` that the fault has a part in; earlier steps show the subject's own past

    Returns
    -------
    ns, in the order of `graph.operations`; None if none of the operations is the subject's
    """
    described = _describe_operations(found, graph)
    computing = trouble.kind in COMPUTE_KINDS
    theirs = _subject_nics(trouble, members, jobs)
    if computing:
        mine = (pl.col("kind") == WORK) & pl.col("addr").is_in(_nics_of_same_pipelines(theirs, found))
    else:
        carried = _carried_operations(trouble, found, theirs)
        on = ["kind", "flow", "group", "round", "before"]
        before = pl.when(pl.col("first_ns").is_not_null()).then("part")
        described = described.with_columns(before=before).join(carried, on=on, how="left", nulls_equal=True)
        mine = pl.col("carried").fill_null(value=False)
    past = pl.col("step_index") < since
    marked = described.with_columns(mine=mine, past=past, troubled=mine & ~past).with_columns(paused_ns=_job_pause_ns())
    if not marked["troubled"].any():
        return None
    usual = _with_healthy_durations(marked) if computing else marked.with_columns(healthy_ns=_usual_transfer_ns())
    healthy = usual.with_columns(healthy_ns=pl.when("troubled").then("healthy_ns"))
    return (
        healthy.sort("position")
        .select(pl.coalesce("healthy_ns", _work_without_waiting_ns()).cast(pl.Float64))
        .to_series()
    )


def _job_pause_ns() -> pl.Expr:
    """Return how long the whole job pauses in a step, ns; repairing one member does not shorten it."""
    soonest = pl.col("first_ns").min().over("kind", "place", "step_index")
    usual = soonest.filter(~pl.col("past")).median().over("kind", "place")
    # A checkpoint that is worth a row makes every member as late.
    return pl.when(soonest > (1 + WORTH_A_ROW) * usual).then(soonest - usual).otherwise(0).fill_null(0)


def _with_healthy_durations(marked: pl.DataFrame) -> pl.DataFrame:
    """Add `healthy_ns`, how long the work takes the subject's peers, or took the subject itself before.

    Before a gradient round, peers may have waited for the subject, which flows do not show; there the subject's own
    past counts first. Without a past, the pace of the subject's other work in the step counts. Without other work, the
    time until the first round counts, because no member has waited before that: a slow GPU is late to the first round
    by the same ratio as to the last.
    """

    def of(who: pl.Expr, duration: str = "duration_ns") -> pl.Expr:
        return pl.col(duration).filter(who).median()

    peers, place = ~pl.col("mine"), ["kind", "place"]
    now, past = of(peers).over(*place, "step_index"), of(pl.col("mine") & pl.col("past")).over(place)
    ever = of(peers).over(place)
    known = marked.with_columns(past_ns=past, others_ns=pl.coalesce(now, ever), usual_ns=pl.coalesce(now, past, ever))
    # The place of work is given by the exchange after it. Beside late neighbours that may be a later pass, never less.
    known = known.with_columns(healthy_ns=pl.col("usual_ns").clip(upper_bound=pl.col("duration_ns")))
    free = (pl.col("kind") == WORK) & pl.col("first_ns").is_null() & pl.col("healthy_ns").is_not_null()
    healthy, took = (
        pl.col(name).filter(free).sum().over("nic", "step_index") for name in ("healthy_ns", "duration_ns")
    )
    by_pace = pl.when(took > 0).then(pl.col("duration_ns") * healthy / took)
    first = pl.when(pl.col("first_ns") > 0).then("first_ns")
    by_first = pl.col("duration_ns") * of(peers, "first_ns").over(*place, "step_index") / first
    by_past = pl.col("past_ns") + pl.col("paused_ns")
    before_rounds = pl.min_horizontal(pl.coalesce(by_past, by_pace, by_first, "others_ns"), "duration_ns")
    elsewhere = pl.coalesce("healthy_ns", by_pace)
    return known.with_columns(healthy_ns=pl.when(pl.col("first_ns").is_null()).then(elsewhere).otherwise(before_rounds))


def _usual_transfer_ns() -> pl.Expr:
    """Return how long a transfer that the subject carries takes at its usual pace, with the work before it.

    A slow network merges rounds that are otherwise separate, or splits one into several, and fewer of them overlap with
    computing. So everything after the first round, work and last round, is taken from the same steps. No member reaches
    the first round later than it did before, except by waiting for another member there.
    """

    def of(who: pl.Expr, *over: str) -> pl.Expr:
        return after.filter(who).median().over("kind", "place", *over)

    first, peers = pl.col("first_ns"), ~pl.col("mine")
    before = first.filter("past").median().over("kind", "place", "nic") + pl.col("paused_ns")
    first = pl.min_horizontal(first, before).fill_null(0)
    after = pl.col("duration_ns") - pl.col("first_ns").fill_null(0)
    now, past, ever = of(peers, "step_index"), of(pl.col("mine") & pl.col("past")), of(peers)
    usual = (
        pl.when(pl.col("kind") == MESSAGE).then(pl.coalesce(now, past, ever)).otherwise(pl.coalesce(past, now, ever))
    )
    return (first + usual).clip(lower_bound=0)


def _work_without_waiting_ns() -> pl.Expr:
    """Return how long the other members' work before their rounds would have taken without waiting for the subject.

    The estimate is, in this order: the time it took them before; the time of any member before; the subject's growth
    since its own first round, applied to theirs. Where they reached the first round no earlier than the subject, as in
    a ring of two, in which nothing can be sent early, they may have waited there for it; then only the work after the
    first round is known.
    """
    place = ["kind", "place"]
    past, anyone = (pl.col("duration_ns").filter("past").median().over(*place, *nic) for nic in (["nic"], []))
    first = pl.when(pl.col("first_ns") > 0).then("first_ns")
    of_subject, growth = (
        of.filter("troubled").median().over(*place, "step_index") for of in (first, pl.col("duration_ns") / first)
    )
    after = (pl.col("duration_ns") - pl.col("first_ns")).clip(lower_bound=0)
    by_first = pl.when(first < of_subject).then(first * growth).otherwise(after)
    before = pl.coalesce(past, anyone) + pl.col("paused_ns")
    usual = pl.when(pl.col("first_ns").is_not_null()).then(pl.coalesce(before, by_first))
    # Rounds that are split when members are late are one round otherwise, so work and round change together.
    round_before = pl.col("duration_ns").filter("past").median().over(place)
    as_before = pl.coalesce(pl.when(~pl.col("past")).then(round_before), "duration_ns")
    return pl.when(pl.col("kind") == ROUND).then(as_before).otherwise(pl.min_horizontal("duration_ns", usual))


def _nics_of_same_pipelines(theirs: list[str], found: Account) -> list[str]:
    """Return some NICs and all NICs that share a pipeline with them.

    The flows do not separate the work of NICs in one pipeline from their waiting for each other.
    """
    linked = found.messages.filter(pl.col("kind") == "pp").select("job_id", src_addr="addr", dst_addr="peer").unique()
    if linked.is_empty():
        return theirs
    component = pair_graph.components(linked)
    around = component.filter(pl.col("addr").is_in(theirs)).select("job_id", "component").unique()
    return [*theirs, *component.join(around, on=["job_id", "component"])["addr"]]


def _subject_nics(trouble: Trouble, members: pl.DataFrame, jobs: pl.DataFrame) -> list[str]:
    """Return the subject's NICs; tensor-parallel NICs of one host and pp_stage work in lock step and count as one."""
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
    if trouble.subject_type == "addr" and trouble.kind in COMPUTE_KINDS and (tp or 1) > 1:  # type: ignore[operator]
        theirs = members.join(theirs.select("host", "pp_stage"), on=["host", "pp_stage"], how="semi", nulls_equal=True)
    return theirs["addr"].to_list()


def _describe_operations(found: Account, graph: StepGraph) -> pl.DataFrame:
    """Add to each operation its NIC, its step, and its place in the step (`place`).

    Operations of equal place are peers: work of one pp_stage before the same exchange; messages between the same
    pp_stages; rounds of the groups of one pp_stage.
    """
    parts = found.parts.select("part", "addr", "nic", "step_index", "pp_stage")
    of_kind = pl.col("kind").cast(pl.Categorical).to_physical()
    sent = (
        found.messages.filter("sends")
        .select("part", "flow", sent_place=_combine_codes(of_kind, "pp_stage", "peer_pp_stage"))
        .join(parts.select("part", sent_step="step_index"), on="part")
        .unique("flow", keep="first")
        .drop("part")
    )
    rounds = (
        found.blocks.select("part", "group", "round", "does")
        .join(parts, on="part", maintain_order="left")
        .unique(["group", "round"], keep="first", maintain_order=True)
        .select("group", "round", round_step="step_index", round_place=_combine_codes("pp_stage", "does"))
    )
    return (
        graph.operations.select(
            "position", "kind", "duration_ns", "part", "flow", "group", "round", "took", "order", "first_ns"
        )
        .join(parts, on="part", how="left")
        .join(sent, on="flow", how="left")
        .join(rounds, on=["group", "round"], how="left")
        .with_columns(
            step_index=pl.coalesce("step_index", "sent_step", "round_step"),
            place=pl.when(pl.col("kind") == WORK)
            .then(_combine_codes("pp_stage", "took", "order"))
            .otherwise(pl.coalesce("sent_place", "round_place")),
        )
    )


def _combine_codes(*facts: str | pl.Expr) -> pl.Expr:
    """Combine several small integers, NULL included, into one number."""
    number: pl.Expr = pl.lit(0, pl.Int64)
    for fact in facts:
        known = pl.col(fact) if isinstance(fact, str) else fact
        number = number * CODE_RADIX + known.cast(pl.Int64).fill_null(-1) + 1
    return number


def _carried_operations(trouble: Trouble, found: Account, theirs: list[str]) -> pl.DataFrame:
    """Return the messages and rounds that the subject carries, and the work before those rounds.

    Columns: `kind`, `flow`, `group`, `round`, `before` (the part that works), `carried`.
    """
    path = pl.col("switch_path")
    if trouble.subject_type == "switch":
        crosses = path.list.contains(trouble.subject)
    elif trouble.subject_type == "link":
        # "leaf - spine", or "leaf to spine" for one direction
        one, other = trouble.subject.replace(" to ", " - ").split(" - ")
        crosses = path.list.contains(one) & path.list.contains(other)
    else:
        crosses = pl.col("addr").is_in(theirs)
    crossing = found.messages.filter(crosses.fill_null(value=False))
    messages = crossing.filter(pl.col("kind") != "dp").select("flow").unique()
    touched = crossing.filter(pl.col("kind") == "dp").select("part").unique()
    rounds = found.blocks.join(touched, on="part").select("group", "round").unique()
    before = found.blocks.join(rounds, on=["group", "round"]).select(before="part").unique()
    kinds = {MESSAGE: messages, ROUND: rounds, WORK: before}
    carried = [rows.with_columns(kind=pl.lit(kind), carried=pl.lit(value=True)) for kind, rows in kinds.items()]
    return pl.concat(carried, how="diagonal")
