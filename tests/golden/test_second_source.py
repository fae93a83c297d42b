"""Jobs of the second source of traffic are read rightly: kinds that were misread once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from accuracy.runs.scored_run import run_with_messages, scores_of
from accuracy.second_source.cases import CASES
from accuracy.second_source.folder import STORAGE, Platform, nic, write
from accuracy.second_source.training import Training
from llmprism_tasks.reports.evaluation.headline import headline

ONE_UNDER_WAY = 1
"""The step under way when a job ends may be told as one."""


@pytest.mark.parametrize(
    ("case", "seed"),
    [
        ("uneven_ddp", 0),
        ("uneven_ddp", 1),
        ("sharded", 10),
        ("uneven_replicas", 0),
        ("uneven_replicas", 3),
        ("long_pipeline", 1),
    ],
)
def test_jobs_are_read_rightly(case: str, seed: int, tmp_path: Path) -> None:
    write(CASES[case](np.random.default_rng([seed, len(case)])), tmp_path, seed)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["exact"] == found["windows"]
    assert (found["called_other"], found["precision"], found["recall"]) == (0, 1.0, 1.0)
    assert found["layouts_right"] == found["layouts"]
    assert found["steps_found"] >= 0.94 * found["steps"]
    assert found["steps_extra"] <= ONE_UNDER_WAY
    assert found["duration_error"]["p95"] <= 0.01


SHARDED = Training(
    "jobA", "fsdp", tuple(nic(host, 0) for host in range(4)), 4.0, 148.0, layers=19, layer_bytes=3.2e7, head=1.0,
    channels=4, optimizer_s=0.008,
)  # fmt: skip
"""Parameters are gathered layer by layer, and the optimizer is too quick to be seen."""

REPLICATED = Training(
    "jobA", "ddp", tuple(nic(host, 0) for host in range(8)), 4.0, 148.0, layers=27, layer_s=0.039, layer_bytes=4e7,
    optimizer_s=0.04, unevenness=0.3, head=0.25,
)  # fmt: skip


@pytest.mark.parametrize(
    ("job", "idle_s"),
    [
        pytest.param(
            replace(
                REPLICATED,
                schedule="fsdp",
                layers=17,
                layer_s=0.021,
                layer_bytes=3.6e7,
                head=0.4,
                channels=1,
                optimizer_s=0.024,
                unevenness=0.1,
                jitter=0.007,
            ),
            0.001,
            id="layers",
        ),
        pytest.param(
            replace(
                SHARDED,
                layers=12,
                layer_s=0.24,
                layer_bytes=1.3e8,
                head=0.3,
                channels=16,
                optimizer_s=0.03,
                unevenness=0.1,
                jitter=0.055,
            ),
            0.005,
            id="layers of long steps",
        ),
        pytest.param(replace(SHARDED, layer_s=0.02, pause_every=12), 0.005, id="evaluations"),
        pytest.param(replace(SHARDED, layer_s=0.04, pause_every=12), 0.005, id="evaluations after longer steps"),
        pytest.param(replace(REPLICATED, bucket_bytes=2.4e8), 0.02, id="buckets"),
        pytest.param(
            replace(
                REPLICATED,
                layer_s=0.028,
                layer_bytes=1.2e8,
                bucket_bytes=7e8,
                head=1.6,
                channels=1,
                overlap=False,
                sharded_optimizer=True,
                optimizer_s=0.15,
            ),
            0.001,
            id="sharded optimizer",
        ),
    ],
)
def test_what_a_step_is_made_of_and_several_steps_are_no_steps(job: Training, idle_s: float, tmp_path: Path) -> None:
    """Layers, buckets, gradients and parameters apart, and all steps from one evaluation to the next were told."""
    platform = Platform([job], hosts=len(job.nics), gpus=2, rate=5e9, idle_s=idle_s, lost=0.001, end_s=150.0)
    write(platform, tmp_path, 1)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["steps_found"] >= 0.95 * found["steps"]
    assert found["steps_extra"] <= ONE_UNDER_WAY


def test_shards_that_are_gathered_in_groups_of_hosts_are_training(tmp_path: Path) -> None:
    """HSDP: a twelfth of the bytes, between the groups, pauses in each step; what is gathered never does.

    In the first window steps were told to end after the forward pass, where the longest silence is.
    """
    write(CASES["hybrid_sharded"](np.random.default_rng([3, len("hybrid_sharded")])), tmp_path, 3)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert (found["exact"], found["called_other"]) == (found["windows"], 0)
    assert (found["steps_found"], found["steps_extra"]) == (found["steps"], 0)
    assert found["duration_error"]["p95"] <= 0.001


def test_the_last_stage_of_gpipe_is_no_slow_stage(tmp_path: Path) -> None:
    """It gets all micro-batches before it answers the first one, and was told to take four times as long as others."""
    nics = tuple(nic(host, gpu) for host in range(4) for gpu in range(2))
    job = Training(
        "jobA", "gpipe", nics, 4.0, 118.0, pp=4, micro_batches=8, layers=4, layer_s=0.04, layer_bytes=4e7,
        bucket_bytes=8e7, activation_bytes=2e7, jitter=0.04,
    )  # fmt: skip
    write(Platform([job], hosts=4, gpus=2, rate=5e9, end_s=120.0), tmp_path, 2)
    found, told = run_with_messages(tmp_path, "flows.parquet", tmp_path / "second.duckdb")
    assert told == []
    assert found["diagnoses"].is_empty()


def test_with_fewer_micro_batches_than_stages_no_stage_is_told_to_be_slow(tmp_path: Path) -> None:
    """The first stages' steps are cut after their next forward passes, where their pairs are silent for longest. What
    they sent next was of another step, and was told to take three times as long, with a message."""
    write(CASES["expert_pipeline"](np.random.default_rng([1, len("expert_pipeline")])), tmp_path, 1)
    found, told = run_with_messages(tmp_path, "flows.parquet", tmp_path / "second.duckdb")
    assert told == []
    assert found["diagnoses"].is_empty()


def test_micro_batches_of_a_few_long_steps_are_no_steps(tmp_path: Path) -> None:
    """Four stages, no replicas: five steps of 46 s, each of sixteen micro-batches. They were told as 71 steps."""
    step, micro_batches = 46.0, 16
    job = Training(
        "jobA", "1f1b", tuple(nic(host, 0) for host in range(4)), 20.0, 295.0, pp=4, micro_batches=micro_batches,
        layers=8, layer_s=step / (micro_batches + 3) / 24, layer_bytes=3e8, bucket_bytes=6e8, activation_bytes=8e7,
        tail=0.06, unevenness=0.1, jitter=0.04,
    )  # fmt: skip
    write(Platform([job], hosts=4, gpus=2, inner=True, spines=2, lost=0.002, end_s=295.0), tmp_path, 1)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["steps_found"] >= 3
    assert found["steps_extra"] == 0


SAVING = Training(
    "jobA", "1f1b", tuple(nic(host, 0) for host in range(4)), 4.0, 240.0, pp=2, micro_batches=8, layer_s=0.0045,
    layer_bytes=9.3e7, bucket_bytes=2.05e9, activation_bytes=2.25e7, channels=1, save_every=7, save_s=0.82,
    save_bytes=1e9, storage=STORAGE,
)  # fmt: skip
"""Two stages, two replicas, a checkpoint after every seventh step."""


@pytest.mark.parametrize(
    ("job", "seed"),
    [
        pytest.param(SAVING, 1, id="bytes"),
        pytest.param(
            replace(
                SAVING,
                nics=tuple(nic(host, gpu) for host in range(4) for gpu in range(2)),
                tp=2,
                end_s=300.0,
                layer_s=0.0089263518145803,
                layer_bytes=185957598.2324401,
                bucket_bytes=2045533580.5568414,
                activation_bytes=45045538.41442231,
                jitter=0.019649857014331248,
                save_every=13,
                save_s=1.6410984185100528,
                in_order=True,
            ),
            3,
            id="micro-batches",
        ),
    ],
)
def test_steps_of_a_pipeline_that_saves_are_those_in_which_its_links_turn_once(
    job: Training, seed: int, tmp_path: Path
) -> None:
    """In a window, all steps up to a save were told as one: by the byte clock, or as micro-batches of it."""
    write(Platform([job], hosts=4, inner=True, lost=0.001, end_s=job.end_s + 2), tmp_path, seed)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["exact"] == found["windows"]
    assert found["steps_found"] >= 0.97 * found["steps"]


def test_replicas_that_no_ring_reaches_are_part_of_their_job(tmp_path: Path) -> None:
    """Rings go through a host once: its other NICs only exchange micro-batches, with those of some other hosts."""
    write(CASES["interleaved"](np.random.default_rng([4, len("interleaved")])), tmp_path, 4)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["exact"] == found["windows"]
    assert (found["steps_found"], found["steps_extra"]) == (found["steps"], 0)


@pytest.mark.parametrize("seed", [2, 900, 901, 2392])
def test_steps_of_experts_are_told_by_the_few_gradients_that_cross_hosts(seed: int, tmp_path: Path) -> None:
    """Tokens go everywhere in other sizes each time; gradients cross at some NICs. No step of three of these was told.

    Of the fourth they were, but then they ended where tokens came latest, after the forward pass.
    """
    write(CASES["experts"](np.random.default_rng([seed, len("experts")])), tmp_path, seed)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["exact"] == found["windows"]
    assert found["steps_found"] == found["steps"]
    assert found["steps_extra"] <= ONE_UNDER_WAY
    assert all(found["degrees"][one]["wrong"] == 0 for one in ("tp", "pp", "dp"))


def test_rails_of_which_one_shows_every_second_step_are_one_job(tmp_path: Path) -> None:
    """Four stages without overlap: the two places of a host were two jobs, one with steps of twice the time."""
    nics = tuple(nic(host, gpu) for host in range(4) for gpu in range(8))
    job = Training(
        "jobA", "1f1b", nics, 9.2, 178.0, tp=2, pp=4, micro_batches=16, layers=2, layer_s=0.0144, layer_bytes=5.6e7,
        bucket_bytes=3.7e8, activation_bytes=6.4e7, lengths=0.1, overlap=False, jitter=0.009, optimizer_s=0.0139,
    )  # fmt: skip
    write(Platform([job], hosts=4, gpus=8, rate=5e9, idle_s=0.001, lost=0.002, end_s=180.0), tmp_path, 107)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["exact"] == found["windows"]
    assert found["steps_extra"] <= ONE_UNDER_WAY


@pytest.mark.parametrize("seed", [1, 3])
def test_heartbeats_checkpoints_and_long_samples_are_no_faults(seed: int, tmp_path: Path) -> None:
    """NICs that were sent heartbeats had lost their links: three messages in eight minutes."""
    job = replace(
        REPLICATED, end_s=238.0, layers=12, layer_s=0.04, layer_bytes=3e7, bucket_bytes=1e8, unevenness=0.05, tail=0.08,
        channels=1, save_every=20, save_s=6.0, save_bytes=5e8, storage=STORAGE, head=1.5, optimizer_s=0.03,
    )  # fmt: skip
    write(Platform([job], hosts=8, gpus=2, rate=5e9, lost=0.001, chatter_s=0.5, end_s=240.0), tmp_path, seed)
    found, told = run_with_messages(tmp_path, "flows.parquet", tmp_path / "second.duckdb")
    assert told == []
    # The first save of a job may take as long each time: it is told as likely as not, and sends nothing.
    faults = found["diagnoses"].filter((pl.col("kind") != "checkpoint_stall") | (pl.col("confidence") > 0.5))
    assert faults.is_empty()
    assert found["steps"].filter(pl.col("addr").is_null()).height < 130
