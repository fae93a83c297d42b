"""The order of a pipeline's stages, by who begins to reduce gradients first, or by what goes ahead in the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import polars as pl
import pytest
from handmade import MS, WINDOW, members

from llmprism_tasks.stages.parallelism.layout import job_profile
from llmprism_tasks.stages.parallelism.layout.stage_order import pp_stages

STEP, STEPS = 1000, 10
Message = tuple[float, str, str, str]
"""Start in ms, sender, receiver and the kind of the pair."""


def passes(order: Sequence[str], begin: float = 0, micro_batches: int = 3) -> list[Message]:
    """Return the pipeline's messages of a step: all activations down the line, then all gradients up (GPipe)."""
    rows: list[Message] = []
    for i in range(micro_batches):
        for place, (src, dst) in enumerate(pairwise(order)):
            rows.append((begin + 50 * i + 50 * place, src, dst, "pp"))
            rows.append((begin + 400 + 50 * i + 50 * (len(order) - place), dst, src, "pp"))
    return rows


def gradients(order: Sequence[str], begin: float = 600) -> list[Message]:
    """Return the gradients of each stage, which has a replica of its NIC's name in capitals; the last stage's first."""
    rows: list[Message] = []
    for place, nic in enumerate(reversed(order)):
        rows += [(begin + 50 * place, *pair, "dp") for pair in ((nic, nic.upper()), (nic.upper(), nic))]
    return rows


def stages(*of_steps: Sequence[Message], pp: int | None, tp: int = 1) -> dict[str, int | None]:
    """Return the stage of each NIC of a job with these messages, step by step."""
    rows = [
        (step, WINDOW.start_ns + round((STEP * step + at) * MS), *rest)
        for step, messages in enumerate(of_steps)
        for at, *rest in messages
    ]
    flows = pl.DataFrame(rows, schema=["step", "flow_start_ns", "src_addr", "dst_addr", "kind"], orient="row")
    flows = flows.with_columns(
        pair=pl.struct("src_addr", "dst_addr").rank("dense").cast(pl.Int32), job_id=pl.lit("j")
    ).sort("pair", "flow_start_ns")
    pairs = flows.select("pair", "job_id", "src_addr", "dst_addr", "kind").unique()
    nics = sorted({*flows["src_addr"], *flows["dst_addr"]})
    sent = job_profile.by_step(flows.with_columns(flow_end_ns="flow_start_ns", bytes=1))
    reducing = flows.filter(pl.col("kind") == "dp")
    groups = pl.DataFrame(
        [("j", nic, ord(nic.lower())) for nic in nics if nic in [*reducing["src_addr"]]],
        schema={"job_id": pl.String, "addr": pl.String, "group": pl.Int64},
        orient="row",
    )
    laid = pl.DataFrame({"job_id": ["j"], "tp": [tp], "pp": [pp]}, schema_overrides={"pp": pl.Int64})
    own = members({"j": {addr: f"host-{addr}" for addr in nics}})
    piped = flows.filter(pl.col("kind") == "pp").select("pair", "step", "flow_start_ns")
    return dict(pp_stages(sent, piped, pairs, laid, groups, own).select("addr", "pp_stage").iter_rows())


def every(*messages: Message) -> list[list[Message]]:
    return [list(messages)] * STEPS


@pytest.mark.parametrize("order", ["ab", "ba", "cadb"])
def test_the_last_stage_reduces_its_gradients_first(order: str) -> None:
    replicas = [(at, src.upper(), dst.upper(), kind) for at, src, dst, kind in passes(order)]
    found = stages(*every(*passes(order), *replicas, *gradients(order)), pp=len(order))
    assert found == {nic: place for place, name in enumerate(order) for nic in (name, name.upper())}


def test_it_does_not_matter_where_in_the_pipeline_steps_were_cut() -> None:
    """The pipeline's messages are counted to the step before; the first of the step is the last stage's gradient."""
    turned = [(at + 500, src, dst, kind) for at, src, dst, kind in passes("ab")]
    assert stages(*every(*turned, *gradients("ab", begin=0)), pp=2) == {"a": 0, "A": 0, "b": 1, "B": 1}


@pytest.mark.parametrize("late", ["", "a", "ab"])
def test_a_step_may_be_cut_while_stages_gather_what_a_sharded_optimizer_made(late: str) -> None:
    """The first stage gathers last: at the beginning of what is told to be the next step."""
    gathered = [(at - (STEP if src.lower() in late else 0), src, *rest) for at, src, *rest in gradients("ab", 900)]
    shown = every(*passes("ab"), *gradients("ab"), *gathered)
    assert stages(*shown, pp=2) == {"a": 0, "A": 0, "b": 1, "B": 1}


def test_a_step_may_be_cut_before_stages_gather_whichever_of_them_does_so_first() -> None:
    gathered = [(at - STEP, *rest) for at, *rest in gradients("ba", 1030)]
    shown = every(*gathered, *passes("ab", begin=100), *gradients("ab"))
    assert stages(*shown, pp=2) == {"a": 0, "A": 0, "b": 1, "B": 1}


@pytest.mark.parametrize(("contrary", "told"), [(2, True), (3, False)])
def test_steps_must_agree_on_who_is_first(contrary: int, *, told: bool) -> None:
    """Of ten steps, two may show the other order."""
    shown = [[*passes("ab"), *gradients("ba" if step < contrary else "ab")] for step in range(STEPS)]
    assert (set(stages(*shown, pp=2).values()) == {0, 1}) is told


def test_of_two_that_always_begin_together_none_is_first() -> None:
    """Who is named first must not depend on the order of rows, which is another each time."""
    together = [(600.0, *pair, "dp") for pair in ("aA", "Aa", "bB", "Bb")]
    for _ in range(10):
        assert set(stages(*every(*passes("ab"), *together), pp=2).values()) == {None}


@pytest.mark.parametrize("order", ["ba", "cab"])
def test_without_gradients_the_first_stage_sends_first_after_the_longest_silence(order: str) -> None:
    """Wherever steps are cut: in GPipe no direction is ahead."""
    for cut in (0, 150, 450):
        turned = sorted(((at + cut) % STEP, *rest) for at, *rest in passes(order))
        assert stages(*every(*turned), pp=len(order)) == {nic: place for place, nic in enumerate(order)}, cut


def test_a_ring_without_gradients_has_no_first_stage() -> None:
    """Interleaved, the last stage hands on to the first."""
    assert set(stages(*every(*passes("abc"), (160.0, "c", "a", "pp"), (420.0, "a", "c", "pp")), pp=3).values()) == {
        None
    }


def test_without_gradients_the_direction_that_is_ahead_tells() -> None:
    """In 1F1B each stage but the last has sent on activations before a gradient comes back; here nobody is silent."""
    ways = {"ab": "ddududuu", "bc": "dudududu"}
    ahead = [
        (125.0 * at + number, *(hop if way == "d" else hop[::-1]), "pp")
        for number, (hop, turns) in enumerate(ways.items())
        for at, way in enumerate(turns)
    ]
    assert stages(*every(*ahead), pp=3) == {"a": 0, "b": 1, "c": 2}


def test_without_a_pipeline_all_are_of_stage_0() -> None:
    assert set(stages(*every(*gradients("ab")), pp=1).values()) == {0}


def test_a_line_that_is_no_whole_pipeline_has_no_order() -> None:
    assert set(stages(*every(*passes("abcd"), *gradients("abcd")), pp=2).values()) == {None}
    assert set(stages(*every(*passes("abcd"), *gradients("abcd")), pp=None).values()) == {None}
