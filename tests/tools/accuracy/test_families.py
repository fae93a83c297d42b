"""Families of scenarios: each seed of each is a scenario that can be simulated, and seeds differ."""

from __future__ import annotations

import polars as pl
import pytest
from results import result

from accuracy.families.collectors import CURVES, point
from accuracy.families.registry import DEVELOPMENT_SEEDS, FAMILIES, FIRST_PUBLISHED_SEED, Bound
from accuracy.families.scenario_draw import Draw
from accuracy.pages.run_totals import tally
from accuracy.runs.measurement import START_NS
from llmprism_tasks.simulate import build_scenario, simulate

each_family = pytest.mark.parametrize("name", FAMILIES)


@each_family
def test_every_seed_draws_a_scenario(name: str) -> None:
    for seed in DEVELOPMENT_SEEDS:
        scenario = build_scenario(name, FAMILIES[name].content(seed))
        assert scenario.jobs


@each_family
def test_seeds_draw_different_scenarios_and_a_seed_always_the_same(name: str) -> None:
    content = FAMILIES[name].content
    drawn = [content(seed) for seed in DEVELOPMENT_SEEDS]
    assert drawn == [content(seed) for seed in DEVELOPMENT_SEEDS]
    assert len({repr(one) for one in drawn}) == len(drawn)


@each_family
def test_published_seeds_are_none_of_those_for_development(name: str) -> None:
    seeds = FAMILIES[name].seeds
    assert len(seeds) >= 2
    assert not set(seeds) & set(DEVELOPMENT_SEEDS)
    assert min(seeds) == FIRST_PUBLISHED_SEED


@each_family
def test_bounds_are_on_figures_that_are_counted(name: str) -> None:
    assert {bound.figure for bound in FAMILIES[name].bounds} <= set(tally([result()]))


def test_the_platform_has_2880_gpus_and_twelve_layouts() -> None:
    for seed in DEVELOPMENT_SEEDS:
        scenario = build_scenario("platform", FAMILIES["platform"].content(seed))
        assert sum(job.ranks for job in scenario.jobs) == 2880
        assert len({(job.tp, job.pp) for job in scenario.jobs}) == 12


def test_points_of_the_curves_differ_in_one_knob_only() -> None:
    drawn = {
        (name, shown): point(curve.key, value, 3) for name, curve in CURVES.items() for shown, value in curve.values
    }
    plain = drawn["loss", "0"]
    for (name, _), content in drawn.items():
        build_scenario("curves", content)
        assert {**content, "collector": plain["collector"]} == plain
        turned = {key for key, value in content["collector"].items() if value != plain["collector"][key]}
        assert turned <= {CURVES[name].key}


def test_a_bound_is_met_at_its_value_and_missed_beyond() -> None:
    least, most = Bound("exact", 0.99), Bound("error_p95", 0.003, at_most=True)
    assert least.met(0.99)
    assert not least.met(0.9899)
    assert most.met(0.003)
    assert not most.met(0.0031)
    assert least.met(None)


def test_a_drawn_job_computes_for_the_time_that_was_asked_for() -> None:
    job = Draw("any", 1).dense("job", 4, (3.0, 3.0), tp=8, pp=2, micro_batches=4)
    passes = job["micro_batches"] + job["pp"] - 1
    assert job["dp"] == 2
    assert job["forward_ms"] * 3 * passes == pytest.approx(3000, rel=0.001)


def test_hosts_are_given_out_once() -> None:
    draw = Draw("any", 1)
    given = [*draw.hosts(3), *draw.hosts(2)]
    assert given == [0, 1, 2, 3, 4]
    assert draw.fabric(spare=1)["hosts"] == 6


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "platform"])
def test_every_nic_of_a_job_that_can_be_seen_carries_its_layout(name: str) -> None:
    """A NIC that is silent cannot be found, so that no method could have its job exact."""
    made = simulate(build_scenario(name, FAMILIES[name].content(0)), minutes=1, seed=0, start_ns=START_NS)
    truth = made.truth
    pairs = truth["truth_pairs"].filter(pl.col("kind") != "other")
    carrying = pl.concat(pairs.select("job", addr=end) for end in ("src_addr", "dst_addr"))
    there = truth["truth_jobs"].filter(pl.col("visible") & (pl.col("kind") == "training"))
    assert there.join(carrying, on=["job", "addr"], how="anti").is_empty()
    assert made.flows.height < 150_000
