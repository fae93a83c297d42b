"""Platforms are full, their parts have hosts of their own, and a minute is merged from them whole and in order."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from bench.platforms import minutes
from bench.platforms.minutes import Platform, holds, simulated
from bench.platforms.mixes import MIXES, PART_HOSTS, SIZES, parts


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("gpus", SIZES)
def test_each_host_has_one_job_and_parts_are_small(mix: str, gpus: int) -> None:
    drawn = parts(mix, gpus)
    hosts = [host for part in drawn for job in part["jobs"] for host in job["hosts"]]
    assert hosts == list(range(gpus // 8))
    assert max(sum(len(job["hosts"]) for job in part["jobs"]) for part in drawn) <= PART_HOSTS
    assert {part["fabric"]["hosts"] for part in drawn} == {gpus // 8}


def test_every_job_has_replicas() -> None:
    jobs = [job for mix in MIXES for part in parts(mix, min(SIZES)) for job in part["jobs"]]
    assert min(job["dp"] for job in jobs) >= 2


def test_a_minute_is_merged_from_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "FOLDER", tmp_path)
    monkeypatch.setattr("bench.platforms.mixes.PART_HOSTS", 4)
    platform, said = Platform("small", 64), []
    assert len(parts("small", 64)) == 3
    simulated(platform, 1, said.append)
    flows = pl.read_parquet(platform.flows(0))
    assert flows["flow_start_ns"].is_sorted()
    assert (flows["flow_start_ns"] // minutes.MINUTE_NS).n_unique() == 1
    hosts = flows["src_addr"].str.extract(r"(\d+)$").cast(pl.Int32)
    assert set(hosts) <= set(range(8))
    assert hosts.n_unique() >= 6
    assert holds(platform)["flows"] == flows.height > 1_000
    assert [file.name for file in platform.flows(0).parent.iterdir()] == [platform.flows(0).name]
    simulated(platform, 1, said.append)
    assert len(said) == 1
