"""The folder of `make demo` and `make up`: what can be simulated again makes room, what was fed live does not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from demo.__main__ import FIRST, make_room
from demo.local_airflow import FLOWS_PATTERN, LocalAirflowError


def test_what_an_earlier_replay_left_makes_room(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    make_room(folder)  # there is none yet
    (folder / "flows").mkdir(parents=True)
    make_room(folder)  # of one that was interrupted
    (folder / "flows").mkdir(parents=True)
    (folder / FLOWS_PATTERN.format(window=datetime.fromisoformat(FIRST))).touch()
    make_room(folder)
    assert not folder.exists()


def test_what_the_live_feed_left_stays_and_the_refusal_says_what_to_do(tmp_path: Path) -> None:
    live = tmp_path / "demo" / "flows" / "20261127T1200.parquet"
    live.parent.mkdir(parents=True)
    live.touch()
    with pytest.raises(LocalAirflowError, match=r"make up.*mv demo demo-live.*rm -r demo.*make demo"):
        make_room(tmp_path / "demo")
    assert live.exists()
