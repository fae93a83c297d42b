"""Equality: what was written is found equal, and what is not is told, with a way to the rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

from accuracy.equality import equality, reference
from accuracy.equality.equality import CAPTURES, Input


def test_every_scenario_and_both_forms_of_a_capture_are_inputs_and_can_be_chosen() -> None:
    names = [one.name for one in equality.inputs()]
    assert {"scenarios/demo", "captures/fsdp4", "captures/fsdp4/coarse", "captures/two_jobs/coarse"} <= {*names}
    assert "captures/two_jobs" not in names
    assert [one.name for one in equality.inputs(only=["small", "captures/pp2_*"])] == [
        "scenarios/small",
        "captures/pp2_only",
        "captures/pp2_only/coarse",
    ]


def test_what_was_written_is_equal_and_another_answer_is_told(tmp_path: Path) -> None:
    flows = pl.read_parquet(CAPTURES / "pp2_only" / "flows_coarse.parquet")
    minute = pl.col("flow_start_ns") // (60 * 10**9)
    flows.filter(minute == minute.max() - 1).write_parquet(tmp_path / "few.parquet")
    shutil.copy(CAPTURES / "pp2_only" / "topology.csv", tmp_path)
    small = Input("captures/pp2_only/coarse", tmp_path, "few.parquet")
    file, said = tmp_path / "tables.json", list[str]()

    def run(ways: tuple[str, ...] = ("whole",), **options: object) -> bool:
        said.clear()
        return equality.run([small], ways, file=file, rows=tmp_path / "rows", say=said.append, **options)  # type: ignore[arg-type]

    assert run(write=True)
    assert run(left_out=["explanations"])
    assert said[-1].startswith("Equal")
    assert said[-1].endswith("explanations not compared")
    entries = reference.read(file)
    pairs = entries[small.name]["whole"]["pairs"]
    entries[small.name]["whole"]["pairs"] = "0" * 16 + pairs[16:]
    reference.write(file, entries)
    assert not run(("parts",))  # of which only what differs from the whole is kept
    told = [line.strip() for line in said if ", window 1" in line]
    assert [line.startswith("parts, pairs, window 1") for line in told] == [True]
    assert "tables --write --rows" in said[-1]


def test_an_input_that_cannot_be_analysed_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "topology.csv").write_text("addr,host\n")
    said: list[str] = []
    lost = Input("captures/lost", tmp_path, "flows.parquet")
    assert not equality.run([lost, lost], (), file=tmp_path / "tables.json", rows=tmp_path, write=True, say=said.append)
    assert [line.split(":")[0] for line in said if " of 2 " in line] == [
        "1 of 2  captures/lost",
        "2 of 2  captures/lost",
    ]
