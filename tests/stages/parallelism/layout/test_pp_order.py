"""The order of a pipeline's stages, by who sends first after its silence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import polars as pl
from handmade import MS, WINDOW, members

from llmprism_tasks.stages.parallelism.layout.pp_order import pp_stages

NICS = "abcd"
MEMBERS = members({"j": {addr: f"host-{addr}" for addr in NICS}})
NO_GROUPS = pl.DataFrame(schema={"job_id": pl.String, "addr": pl.String, "group": pl.Int64})
STEP = 1000


def one_step(begin: float, order: Sequence[str], micro_batches: int = 3) -> list[tuple[float, str, str]]:
    """Return when who sends to whom in a step: activations down the line, then gradients up."""
    rows = []
    for i in range(micro_batches):
        for place, (src, dst) in enumerate(pairwise(order)):
            rows.append((begin + 50 * i + 50 * place, src, dst))
            rows.append((begin + 50 * i + 50 * (2 * len(order) - place), dst, src))
    return rows


def stages(order: Sequence[str], *, cut: float, pp: int | None = 4) -> dict[str, int | None]:
    """Return each NIC's stage, in a job whose steps are cut at this moment of the pipeline's."""
    return stages_of(one_step(0, order), cut=cut, pp=pp)


def stages_of(step: Sequence[tuple[float, str, str]], *, cut: float, pp: int | None) -> dict[str, int | None]:
    """Do so where each step has these messages."""
    rows = [(STEP * k + begin, src, dst) for k in range(6) for begin, src, dst in step]
    flows = pl.DataFrame(
        {
            "job_id": ["j"] * len(rows),
            "src_addr": [row[1] for row in rows],
            "dst_addr": [row[2] for row in rows],
            "flow_start_ns": [WINDOW.start_ns + round(row[0] * MS) for row in rows],
            "bytes": [8_000_000] * len(rows),
        }
    )
    job_steps = pl.DataFrame(
        {"job_id": ["j"] * 6, "end_ns": [WINDOW.start_ns + round((STEP * k + cut) * MS) for k in range(6)]}
    )
    flows = flows.with_columns(pair=pl.struct("src_addr", "dst_addr").rank("dense").cast(pl.Int32))
    pairs = flows.select("pair", "job_id", "src_addr", "dst_addr", kind=pl.lit("pp")).unique()
    laid = pl.DataFrame({"job_id": ["j"], "tp": [1], "pp": [pp]}, schema_overrides={"pp": pl.Int64})
    found = pp_stages(flows.sort("pair", "flow_start_ns"), job_steps, pairs, laid, NO_GROUPS, MEMBERS)
    return dict(found.select("addr", "pp_stage").iter_rows())


def test_the_first_to_send_is_the_first_stage() -> None:
    assert stages("abcd", cut=950) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert stages("cadb", cut=950) == {"c": 0, "a": 1, "d": 2, "b": 3}


def test_it_does_not_matter_where_in_the_pipeline_steps_were_cut() -> None:
    for cut in (0, 120, 333, 500, 700):
        assert stages("dcba", cut=cut) == {"d": 0, "c": 1, "b": 2, "a": 3}, cut


def test_without_a_pipeline_all_are_of_stage_0() -> None:
    assert set(stages("abcd", cut=950, pp=1).values()) == {0}


def test_a_line_that_is_no_whole_pipeline_has_no_order() -> None:
    assert set(stages("abcd", cut=950, pp=2).values()) == {None}
    assert set(stages("abcd", cut=950, pp=None).values()) == {None}
    assert set(stages("abc", cut=950, pp=3).values()) == {None}


def test_of_two_that_always_send_together_none_is_first() -> None:
    """Who is named first must not depend on the order of rows, which is another each time."""
    both = one_step(0, "ab") + one_step(0, "cd")
    assert stages_of(both, cut=950, pp=2) == {"a": 0, "b": 1, "c": 0, "d": 1}
    together = [*both, (0, "d", "c")]
    for _ in range(10):
        assert set(stages_of(together, cut=950, pp=2).values()) == {None}
