"""What every stage of the plan keeps, on rows of two simulated tenants and a captured run that begins after them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest
from places import REAL
from polars.testing import assert_frame_equal

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.plan import DERIVED, STAGES, Stage
from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.stage_runner import stage_functions
from llmprism_tasks.settings import Settings
from llmprism_tasks.simulate import load_scenario, simulate
from llmprism_tasks.stages.partition_values import PartitionValues
from llmprism_tasks.stages.traffic import nic_pairs

CAPTURE = REAL / "ddp4_healthy"
SECOND_NS = 1_000_000_000
FIRST = Window(1_760_000_400 * SECOND_NS, 60 * SECOND_NS)
WINDOW = FIRST.shifted(1)
BEGINS_NS = FIRST.start_ns + 20 * SECOND_NS  # the captured run; its first seconds are start-up and the first weights
SETTINGS = Settings()

Tables = dict[str, pl.DataFrame]

every_stage = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)


def run(stage: Stage, tables: Mapping[str, pl.DataFrame], window: Window = WINDOW) -> Tables:
    """Run a stage on the tables it reads."""
    function = stage_functions("joint")[stage.name]
    values = PartitionValues(tables["flows"], window, SETTINGS).named(stage.takes, tables)
    read = {table: tables[table] for table in stage.reads if table != "flows"}
    results = function(**read, **values, window=window, settings=SETTINGS)
    return {table: frames.plain(frame) for table, frame in zip(stage.writes, results, strict=True)}


def derive(landed: Mapping[str, pl.DataFrame], window: Window) -> dict[str, tuple[Tables, Tables]]:
    """Run all stages for a window on flows and topology; return what each of them read and wrote."""
    visible = (pl.col("window_start_ns") >= window.lookback(SETTINGS.window.lookback_windows).start_ns) & (
        pl.col("window_start_ns") <= window.start_ns
    )
    tables: Tables = {"topology": landed["topology"], "flows": landed["flows"].filter(visible)}
    seen: dict[str, tuple[Tables, Tables]] = {}
    for stage in STAGES:
        written = run(stage, tables, window)
        seen[stage.name] = ({table: tables[table] for table in stage.reads}, written)
        tables |= written
    return seen


@pytest.fixture(scope="module")
def landed() -> Tables:
    """Return `flows` and `topology` as they would be landed: three minutes' windows, the last without the tenants."""
    made = simulate(load_scenario("small"), minutes=2, seed=3, start_ns=FIRST.start_ns)
    captured = pl.read_parquet(CAPTURE / "flows_coarse.parquet")
    times = pl.col("flow_start_ns", "flow_end_ns") + (BEGINS_NS - captured["flow_start_ns"].min())
    addrs = pl.col("src_addr", "dst_addr").str.replace("10.0.", "10.99.", literal=True)
    flows = pl.concat([made.flows, captured.select(made.flows.columns).with_columns(times, addrs)])
    nics = pl.read_csv(CAPTURE / "topology.csv").with_columns(
        pl.col("addr").str.replace("10.0.", "10.99.", literal=True),
        pl.col("gpu").cast(pl.Int32),
        pod=pl.lit(None, dtype=pl.String),
    )
    window = pl.col("flow_start_ns") // WINDOW.length_ns * WINDOW.length_ns
    return {
        "flows": flows.with_columns(window_start_ns=window).select(table_named("flows").column_names),
        "topology": pl.concat([made.topology, nics.select(made.topology.columns)]),
    }


@pytest.fixture(scope="module")
def seen(landed: Tables) -> dict[str, tuple[Tables, Tables]]:
    return derive(landed, WINDOW)


def test_the_rows_are_worth_testing_with(seen: dict[str, tuple[Tables, Tables]]) -> None:
    """Three jobs, each with steps, and rows in every table that a healthy minute fills."""
    members = seen["recognition"][1]["job_members"]
    assert sorted(members.group_by("job_id").len()["len"]) == [4, 8, 16]
    assert seen["timeline"][1]["steps"]["job_id"].n_unique() == 3
    written = {table: frame for _, tables in seen.values() for table, frame in tables.items()}
    assert [table for table in DERIVED if table != "diagnoses" and written[table].is_empty()] == []


def test_pairs_nics_and_timeline_count_the_steps_of_a_job_alike(seen: dict[str, tuple[Tables, Tables]]) -> None:
    (pair_steps,), (steps, told, _) = (seen[stage][1].values() for stage in ("step_division", "timeline"))
    step = ["job_id", "addr", "step_index"]
    nics = steps.drop_nulls("addr").select(*step, since_ns="start_ns", until_ns="end_ns")
    sent = pair_steps.rename({"src_addr": "addr"}).join(nics, on=step)
    assert sent.select("job_id", "step_index").unique().height == steps.filter(pl.col("addr").is_null()).height
    for rows in (sent, told.join(nics, on=step, how="left")):
        assert (
            rows.select((pl.col("start_ns") < pl.col("until_ns")) & (pl.col("end_ns") >= pl.col("since_ns")))
            .to_series()
            .all()
        )


@every_stage
def test_nothing_in_nothing_out(stage: Stage) -> None:
    written = run(stage, {table: frames.empty(table) for table in stage.reads})
    for table, frame in written.items():
        assert_frame_equal(frame, frames.empty(table))


@every_stage
def test_columns_types_and_order_are_the_contract_s(stage: Stage, seen: dict[str, tuple[Tables, Tables]]) -> None:
    for table, frame in seen[stage.name][1].items():
        assert frame.schema == frames.empty(table).schema
        assert_frame_equal(frame, frames.conform(frame, table))


@every_stage
def test_keys_are_unique_and_only_optional_columns_are_null(
    stage: Stage, seen: dict[str, tuple[Tables, Tables]]
) -> None:
    for table, frame in seen[stage.name][1].items():
        wanted = table_named(table)
        assert not frame.select(wanted.key).is_duplicated().any()
        required = [column.name for column in wanted.columns if not column.optional]
        assert frame.select(required).null_count().transpose().to_series().sum() == 0


@every_stage
def test_nothing_lies_outside_the_window(stage: Stage, seen: dict[str, tuple[Tables, Tables]]) -> None:
    for table, frame in seen[stage.name][1].items():
        assert frame["window_start_ns"].unique().to_list() in ([], [WINDOW.start_ns])
        if "end_ns" in frame.columns:
            assert (frame["end_ns"] <= WINDOW.end_ns).all(), table
            assert (frame["start_ns"] <= frame["end_ns"]).all(), table
    if "steps" in stage.writes:
        assert (seen[stage.name][1]["steps"]["end_ns"] >= WINDOW.start_ns - SECOND_NS).all()


@every_stage
def test_the_order_of_rows_does_not_matter(stage: Stage, seen: dict[str, tuple[Tables, Tables]]) -> None:
    read, written = seen[stage.name]
    for seed in (1, 2):
        shuffled = {table: frame.sample(fraction=1, shuffle=True, seed=seed) for table, frame in read.items()}
        for table, frame in run(stage, shuffled).items():
            assert_frame_equal(frame, written[table])


@every_stage
def test_run_again_it_says_the_same_and_leaves_its_input_alone(
    stage: Stage, seen: dict[str, tuple[Tables, Tables]]
) -> None:
    read, written = seen[stage.name]
    before = {table: frame.clone() for table, frame in read.items()}
    for table, frame in run(stage, read).items():
        assert_frame_equal(frame, written[table], check_exact=True)
    for table, frame in read.items():
        assert_frame_equal(frame, before[table], check_exact=True)


def of_jobs(tables: Tables, jobs: list[str]) -> Tables:
    """Keep the rows of some jobs, as a stage that runs for them is handed them; flows are those of their members."""
    members = tables["job_members"].filter(pl.col("job_id").is_in(jobs))["addr"]
    ours = pl.col("src_addr").is_in(members.implode()) | pl.col("dst_addr").is_in(members.implode())
    return {
        table: frame.filter(ours)
        if table == "flows"
        else frame.filter(pl.col("job_id").is_in(jobs))
        if "job_id" in frame.columns
        else frame
        for table, frame in tables.items()
    }


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage.per_job], ids=lambda stage: stage.name)
def test_some_jobs_at_a_time_give_the_rows_of_all_at_once(stage: Stage, seen: dict[str, tuple[Tables, Tables]]) -> None:
    read, written = seen[stage.name]
    jobs = sorted(read["jobs"]["job_id"])
    for batch in [[job] for job in jobs] + [jobs[:2]]:
        for table, frame in run(stage, of_jobs(read, batch)).items():
            assert_frame_equal(frame, written[table].filter(pl.col("job_id").is_in(batch)))


@pytest.fixture(scope="module")
def by_window(landed: Tables) -> list[tuple[Window, Tables]]:
    """What the stages wrote, window by window, oldest first."""
    windows = [Window(start, WINDOW.length_ns) for start in sorted(landed["flows"]["window_start_ns"].unique())]
    return [
        (window, {table: frame for _, tables in derive(landed, window).values() for table, frame in tables.items()})
        for window in windows
    ]


def test_a_job_keeps_its_name_from_window_to_window(by_window: list[tuple[Window, Tables]]) -> None:
    names = (
        pl.concat([tables["job_members"] for _, tables in by_window]).group_by("addr").agg(pl.col("job_id").unique())
    )
    assert names["job_id"].list.len().max() == 1


def test_each_step_is_reported_by_one_window_and_none_twice(by_window: list[tuple[Window, Tables]]) -> None:
    """Consecutive ends of each NIC are apart by about a period: nothing is missing or doubled at the windows' edges."""
    steps = pl.concat([tables["steps"] for _, tables in by_window])
    assert not steps.select("job_id", "addr", "end_ns").is_duplicated().any()
    spans = steps.sort("end_ns").with_columns(length=pl.col("end_ns").diff().over("job_id", "addr", order_by="end_ns"))
    ratio = spans["length"] / spans.select(pl.col("length").median().over("job_id", "addr")).to_series()
    assert 0.7 < ratio.min() <= ratio.max() < 1.5
    starts = spans.with_columns(before=pl.col("end_ns").shift().over("job_id", "addr", order_by="end_ns")).drop_nulls(
        "before"
    )
    assert (starts["start_ns"] == starts["before"]).all()


def test_a_step_s_rows_have_the_same_number_in_all_tables(by_window: list[tuple[Window, Tables]]) -> None:
    """A pair's step ends no later than its sender's step of that number, but for control messages."""
    for _, tables in by_window:
        own = tables["steps"].drop_nulls("addr").select("job_id", "step_index", "start_ns", "end_ns", addr="addr")
        rows = tables["timeline"].join(own, on=["job_id", "addr", "step_index"], how="left", suffix="_step")
        assert rows["end_ns_step"].null_count() == 0
        assert (rows["end_ns"] <= rows["end_ns_step"]).all()
        assert (rows["start_ns"] >= rows["start_ns_step"]).all()
        numbers = (
            tables["steps"].group_by("job_id", "addr").agg(pl.col("step_index").sort().diff().drop_nulls().unique())
        )
        assert set(numbers["step_index"].explode().drop_nulls()) <= {1}


def test_a_timeline_has_no_gaps_and_covers_its_steps(by_window: list[tuple[Window, Tables]]) -> None:
    _, tables = by_window[1]
    step = ["job_id", "addr", "step_index"]
    own = tables["steps"].drop_nulls("addr")
    covered = (
        tables["timeline"]
        .sort("start_ns")
        .group_by(step, maintain_order=True)
        .agg(
            first=pl.col("start_ns").min(),
            last=pl.col("end_ns").max(),
            gap=(pl.col("start_ns") - pl.col("end_ns").cum_max().shift()).max(),
        )
        .join(own, on=step)
    )
    assert covered.height == own.height
    assert (covered["first"] == covered["start_ns"]).all()
    assert (covered["last"] == covered["end_ns"]).all()
    assert covered["gap"].max() <= 0


def test_members_of_a_job_send_only_to_each_other(seen: dict[str, tuple[Tables, Tables]]) -> None:
    """Every flow between NICs of this window is in `pairs`, counted once."""
    read, written = seen["parallelism"]
    inside = nic_pairs.inside_jobs(read["flows"], read["job_members"]).filter(window_start_ns=WINDOW.start_ns)
    assert written["pairs"]["flows"].sum() == inside.height
    assert written["pairs"]["bytes"].sum() == inside["bytes"].sum()
