"""Diagnoses compared with the true faults: which fault was named, how soon, and which diagnoses name no fault."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.reports.evaluation.jobs import FOUND_JOB, Tables

DEVICES = ("addr", "host", "link", "switch")
"""Types of subjects that can be at fault. Jobs, data-parallel groups and pipeline stages only show a device's effect,
unless the fault is the job's or the stage's own."""

KINDS = {
    "slow_gpu": ["slow_compute"],
    "slow_rank": ["slow_compute"],
    "slow_stage": ["pipeline_imbalance"],
    "slow_nic": ["slow_nic", "latent"],
    "limited_nic": ["slow_nic", "latent"],
    "degraded_switch": ["degraded_switch", "switch_level", "slow_network"],
    "degraded_link": ["degraded_link", "slow_network"],
    "limited_uplink": ["degraded_link", "slow_network"],
    "ecmp_collision": ["congestion", "slow_network"],
    "link_flap": ["link_flap"],
    "checkpoint_stall": ["checkpoint_stall"],
    "data_loader_stalls": ["stalls"],
    "hang": ["hang"],
    "stopped_rank": ["hang"],
    "killed_rank": ["stopped", "hang"],
    "crash": ["stopped"],
}
"""Kinds of diagnosis that are right for each kind of fault; for a kind of fault that is missing here, any kind is."""


def judged(found: Tables, truth: Tables, owned: pl.DataFrame) -> pl.DataFrame:
    """Assign each diagnosis to a fault of its time.

    Parameters
    ----------
    found : `diagnoses`
    truth : `truth_faults`, with `accept`: the subjects that count as right, each as `type:subject`. A fault without a
        job (a switch's) may be found in any job
    owned : as `owners` returns

    Returns
    -------
    `diagnoses` with `fault` (its row in `truth_faults`; NULL for none), `job` (the true one) and `verdict`: `named` (a
    subject that counts as right), `symptom` (a fault's effect on its job: subject type job, dp_group or pp_stage; or
    `ended` of a job that had no step meanwhile; a `cross_step` about single steps in which the job stood still on
    purpose) or `false`.
    At times of several faults, a diagnosis belongs to the fault that it names.
    """
    diagnoses = found["diagnoses"].with_row_index("diagnosis").join(owned.select(*FOUND_JOB, "job"), FOUND_JOB, "left")
    faults = _faults(truth)
    device = pl.col("subject_type").is_in(DEVICES)
    named = pl.col("accept").list.contains(_said("job"))
    met = (
        diagnoses.join(faults, how="cross")
        .filter(pl.col("start_ns") <= pl.col("fault_end_ns"), pl.col("end_ns") >= pl.col("fault_start_ns"))
        .filter(pl.col("fault_job").is_null() | (pl.col("fault_job") == pl.col("job")) | (named & device))
        .with_columns(named=named)
        .filter(pl.col("named") | ~device)
        .sort("diagnosis", "named", "fault", descending=[False, True, False])
        .unique("diagnosis", keep="first", maintain_order=True)
        .select("diagnosis", "fault", "named")
    )
    silent = diagnoses.filter(pl.col("kind") == "ended").join(_at_work(diagnoses, truth), on="diagnosis", how="anti")
    known = pl.concat([silent["diagnosis"], _of_pauses(diagnoses, truth)])
    effect = pl.col("fault").is_not_null() | pl.col("diagnosis").is_in(known.implode())
    verdict = pl.when("named").then(pl.lit("named")).when(effect).then(pl.lit("symptom"))
    return (
        diagnoses.join(met, on="diagnosis", how="left")
        .with_columns(verdict=verdict.otherwise(pl.lit("false")))
        .drop("diagnosis", "named")
        .sort(*FOUND_JOB, "kind", "subject_type", "subject")
    )


def _of_pauses(diagnoses: pl.DataFrame, truth: Tables) -> pl.Series:
    """Return `diagnosis`: the rows about single slow steps in which their true job stood still on purpose."""
    pauses = truth["truth_pauses"].select("job", since_ns="start_ns", until_ns="end_ns")
    single = diagnoses.filter(pl.col("kind") == "cross_step", pl.col("steps").is_not_null())
    met = single.join(pauses, on="job").filter(
        pl.col("start_ns") < pl.col("until_ns"), pl.col("end_ns") > pl.col("since_ns")
    )
    return met["diagnosis"]


def _at_work(diagnoses: pl.DataFrame, truth: Tables) -> pl.DataFrame:
    """Return `diagnosis`: the rows at whose time a whole step of their true job passed."""
    steps = truth["truth_steps"].select(
        "job", begins_ns=pl.col("end_ns").shift().over("job", order_by="end_ns"), ends_ns="end_ns"
    )
    return diagnoses.join(steps.drop_nulls(), on="job").filter(
        pl.col("begins_ns") >= pl.col("start_ns"), pl.col("ends_ns") <= pl.col("end_ns")
    )


def _said(job: str) -> pl.Expr:
    """Return a diagnosis's subject as the truth writes it, which has its own names for jobs."""
    subject = pl.when(pl.col("subject_type") == "job").then(job).otherwise("subject")
    return pl.concat_str("subject_type", pl.lit(":"), subject)


def _faults(truth: Tables) -> pl.DataFrame:
    return truth["truth_faults"].select(
        "accept",
        fault=pl.int_range(pl.len(), dtype=pl.Int64),
        fault_kind="kind",
        fault_job="job",
        fault_subject=pl.concat_str("subject_type", pl.lit(":"), "subject"),
        fault_start_ns="start_ns",
        fault_end_ns="end_ns",
    )


def fault_scores(found: Tables, truth: Tables, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return for each fault whether it was named, when, and by which kind.

    Parameters
    ----------
    found : `windows`; faults outside all of them are left out
    truth : `truth_faults`, `truth_steps`, `truth_pauses`; faults that are pauses on purpose, such as checkpoints that a
        job writes by habit, are left out: nobody has to tell them
    verdicts : as `judged` returns

    Returns
    -------
    `fault`, `kind`, `job`, `subject`, `named` (whether any subject that counts as right was named), `first` (the device
    that was named first, as `type:subject`; the worst of several in one window; devices of another fault do not count),
    `first_right`, `kinds` (of the diagnoses that name it), `kind_right` (of the first of them), `delay` (windows from
    the one in which the fault begins to the first that names it; 0 is at once), `effect` (ratio by which steps of the
    job that it slows most are longer on average than steps at times without a fault; NULL without such steps)
    """
    faults = _owed_faults(truth)
    expected = pl.col("kind").replace_strict(KINDS, default=None, return_dtype=pl.List(pl.String))
    delay = ((pl.col("named_ns") - pl.col("begin_ns")) // pl.col("length_ns")).cast(pl.Int64)
    return (
        faults.join(_first_windows(faults, found["windows"]), on="fault")
        .join(_kinds_of_names(verdicts), on="fault", how="left")
        .join(_first_named(faults, verdicts), on="fault", how="left")
        .join(_effects(faults, truth["truth_steps"]), on="fault", how="left")
        .select(
            "fault",
            kind="fault_kind",
            job="fault_job",
            subject="fault_subject",
            named=pl.col("named_ns").is_not_null(),
            first="first",
            first_right=pl.col("accept").list.contains(pl.col("first")).fill_null(value=False),
            kinds=pl.col("kinds").fill_null([]),
            said="said",
            delay=delay,
            effect="effect",
        )
        .with_columns(
            kind_right=pl.col("named") & expected.list.contains(pl.col("said")).fill_null(value=True),
        )
        .drop("said")
        .sort("fault")
    )


def _owed_faults(truth: Tables) -> pl.DataFrame:
    """Return the faults that are no pauses on purpose."""
    habits = truth["truth_pauses"].select(fault_job="job", fault_start_ns="start_ns", fault_end_ns="end_ns")
    return _faults(truth).join(habits, on=habits.columns, how="anti", maintain_order="left")


def _first_windows(faults: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return `fault`, `begin_ns`, `length_ns`: start and length of the window in which each begins, if any was run."""
    spans = windows.select("window_start_ns", "window_end_ns").join_where(
        faults, pl.col("fault_start_ns") < pl.col("window_end_ns"), pl.col("fault_end_ns") > pl.col("window_start_ns")
    )
    return spans.group_by("fault").agg(
        begin_ns=pl.col("window_start_ns").min(),
        length_ns=(pl.col("window_end_ns") - pl.col("window_start_ns")).max(),
    )


def _kinds_of_names(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return `fault`, `kinds` (of the diagnoses that name it), `named_ns` and `said`: window and kind of the first."""
    return (
        verdicts.filter(pl.col("verdict") == "named")
        .group_by("fault")
        .agg(
            kinds=pl.col("kind").unique().sort(),
            named_ns=pl.col("window_start_ns").min(),
            said=pl.col("kind").sort_by("window_start_ns", pl.col("severity").neg(), "kind").first(),
        )
    )


def _effects(faults: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return `fault`, `effect`: ratio by which steps that begin in a fault are longer than those without."""
    lengths = steps.select("job", begins_ns=pl.col("end_ns").shift().over("job", order_by="end_ns"), ends_ns="end_ns")
    lengths = lengths.drop_nulls().with_columns(length_ns=pl.col("ends_ns") - pl.col("begins_ns"))
    felt = lengths.join(faults, how="cross").filter(
        pl.col("fault_job").is_null() | (pl.col("fault_job") == pl.col("job")),
        pl.col("begins_ns") >= pl.col("fault_start_ns"),
        pl.col("begins_ns") < pl.col("fault_end_ns"),
    )
    met = lengths.join(faults, how="cross").filter(
        pl.col("ends_ns") > pl.col("fault_start_ns"), pl.col("begins_ns") < pl.col("fault_end_ns")
    )
    usual = (
        lengths.join(met, on=["job", "ends_ns"], how="anti").group_by("job").agg(usual_ns=pl.col("length_ns").mean())
    )
    return (
        felt.group_by("fault", "job")
        .agg(pl.col("length_ns").mean())
        .join(usual, on="job")
        .group_by("fault")
        .agg(effect=(pl.col("length_ns") / pl.col("usual_ns")).max() - 1)
    )


def _first_named(faults: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return `fault`, `first`: the device that is named first during each fault; effects do not count."""
    blamed = verdicts.filter(pl.col("subject_type").is_in(DEVICES) | (pl.col("verdict") == "named")).select(
        "window_start_ns",
        "severity",
        "score",
        "job",
        "start_ns",
        "end_ns",
        "verdict",
        owner="fault",
        first=_said("job"),
    )
    of_its_job = pl.col("fault_job").is_null() | (pl.col("fault_job") == pl.col("job"))
    return (
        faults.join(blamed, how="cross")
        .filter(pl.col("start_ns") <= pl.col("fault_end_ns"), pl.col("end_ns") >= pl.col("fault_start_ns"))
        .filter((pl.col("owner") == pl.col("fault")) | (pl.col("owner").is_null() & of_its_job))
        .sort("fault", "window_start_ns", "severity", "score", "first", descending=[False, False, True, True, False])
        .unique("fault", keep="first", maintain_order=True)
        .select("fault", "first")
    )
