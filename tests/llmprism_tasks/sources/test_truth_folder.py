"""Truth folders: what must be there, and the stages that rank order gives."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from places import REAL

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.sources.truth import read_truth

TRUTH = REAL / "dp2pp4_healthy" / "truth"
ADDRS = [f"10.0.0.{n}" for n in range(8)]
FORWARD = [(ADDRS[n], ADDRS[n + 4]) for n in range(4)]


def write(folder: Path, *, members: list[str] = ADDRS, links: list[tuple[str, str]] = FORWARD) -> str:
    """Write the truth about a job of tp 2, dp 2, pp 2 whose members are in rank order."""
    jobs = pl.DataFrame({"job": "a", "addr": members}).with_columns(start_ns=0, end_ns=9)
    pairs = pl.DataFrame(links, schema=["src_addr", "dst_addr"], orient="row").with_columns(
        job=pl.lit("a"), kind=pl.lit("pp")
    )
    steps = pl.DataFrame({"job": ["a"], "step": [0], "start_ns": [0], "end_ns": [9]})
    for name, table in {"truth_jobs": jobs, "truth_pairs": pairs, "truth_steps": steps}.items():
        table.write_parquet(folder / f"{name}.parquet")
    pl.DataFrame({"job": ["a"], "tp": [2], "cp": [1], "dp": [2], "pp": [2]}).write_csv(folder / "layouts.csv")
    return str(folder)


def test_what_real_ranks_logged_is_read() -> None:
    truth = read_truth(str(TRUTH))
    assert set(truth) == {"truth_jobs", "truth_pairs", "truth_steps", "truth_faults", "truth_ranks"}
    assert truth["truth_ranks"]["pp_index"].unique().sort().to_list() == [0, 1, 2, 3]


def test_stages_follow_from_rank_order(tmp_path: Path) -> None:
    ranks = read_truth(write(tmp_path))["truth_ranks"].sort("addr")
    assert ranks["pp_index"].to_list() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "other",
    [{"links": [(ADDRS[0], ADDRS[1])]}, {"members": [*ADDRS, "10.0.0.9"]}],
    ids=["a pipeline within a stage", "more members than ranks"],
)
def test_rows_in_another_order_tell_no_stages(tmp_path: Path, other: dict[str, list[str]]) -> None:
    assert read_truth(write(tmp_path, **other))["truth_ranks"].is_empty()  # type: ignore[arg-type]


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"truth_jobs\.parquet.*--truth"):
        read_truth(str(tmp_path))


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    place = write(tmp_path)
    pl.read_parquet(tmp_path / "truth_steps.parquet").drop("end_ns").write_parquet(tmp_path / "truth_steps.parquet")
    with pytest.raises(InputError, match=r"truth_steps\.parquet without column end_ns"):
        read_truth(place)
