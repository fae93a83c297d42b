"""A job that fell silent in the middle of a step is recognised while the look-back shows it; one that ended is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from handmade import MB, WINDOW, Row, burst, every, flows, ring, settings, taken, topology, visible
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.recognition.phase import recognition

HOSTS = topology({f"host-{addr}": [addr, f"{addr}2"] for addr in "abcdefgh"})
LAST = 36_000


def whole(nics: str = "abcd", count: int = 18, start: float = 0) -> list[Row]:
    return ring(nics, every(2000, count=count, start=start))


def begun(nics: Sequence[str] = "abcd", at: float = LAST) -> list[Row]:
    """Return what is sent into a ring to which the second NIC does not come."""
    return [row for row in ring(nics, [at], size=30 * MB, length=40) if nics[1] not in row]


def other(minutes: float = 8) -> list[Row]:
    """Return another job's steps, which go on."""
    return whole("efgh", round(minutes * 30))


def members(*parts: list[Row], after: int = 0) -> list[tuple[str, str]]:
    """Return the jobs of a window by their NICs, with their names."""
    window = WINDOW.shifted(after)
    jobs, found = recognition(
        **taken("recognition", visible(flows(*parts), window), window, topology=HOSTS),
        topology=HOSTS,
        window=window,
        settings=settings(),
    )
    assert jobs["job_id"].to_list() == found["job_id"].unique().sort().to_list()
    assert set(jobs["window_start_ns"]) | set(found["window_start_ns"]) <= {window.start_ns}
    together = found.sort("addr").group_by("job_id", maintain_order=True).agg("addr")
    return sorted(("".join(addrs), job_id) for job_id, addrs in together.rows())


def test_a_hung_job_stays_under_its_name_for_as_long_as_the_look_back_shows_it() -> None:
    parts = (whole(), begun(), other())
    first = members(*parts)
    assert [nics for nics, _ in first] == ["abcd", "efgh"]
    assert [members(*parts, after=after) for after in range(1, 6)] == [first] * 5
    assert [nics for nics, _ in members(*parts, after=6)] == ["efgh"]


def test_a_job_that_ended_is_gone() -> None:
    assert [nics for nics, _ in members(whole(), other(), after=1)] == ["efgh"]


def test_a_job_that_was_cut_off_at_once_is_gone() -> None:
    at_once = ring("abcd", [LAST], size=30 * MB, length=40)
    assert [nics for nics, _ in members(whole(), at_once, other(), after=1)] == ["efgh"]


def test_a_job_without_another_beside_it_stays_too() -> None:
    """Somebody must be seen: what an operator's machine sends to a host is enough."""
    seen = [(at, at + 1, "x", "a", 200) for at in every(10_000, count=12)]
    assert [nics for nics, _ in members(whole(), begun(), seen, after=1)] == ["abcd"]


def test_a_copy_of_files_between_two_members_does_not_hide_a_job_that_hangs() -> None:
    copy = [(at, at + 400, "a", "b", 10 * MB) for at in every(1000, count=160, start=70_000)]
    parts = (whole("abcdef"), begun("abcdef"), copy, whole("gh", 120))
    for after in (1, 2):
        assert [nics for nics, _ in members(*parts, after=after)] == ["abcdef", "gh"]


def test_a_copy_from_another_job_that_goes_on_does_not_hide_one_that_hangs() -> None:
    copy = [(at, at + 400, "e", "c", 10 * MB) for at in every(1000, count=160, start=30_000)]
    assert [nics for nics, _ in members(whole(), begun(), copy, whole("ef", 120), after=1)] == ["abcd", "ef"]


def test_a_ring_that_goes_on_without_a_member_is_no_job_that_hangs() -> None:
    parts = (whole("abcdef"), ring("abcde", every(2000, count=40, start=40_000)))
    assert [nics for nics, _ in members(*parts, after=1)] == ["abcde"]


def test_a_job_of_which_the_window_shows_the_last_moment_is_whole() -> None:
    """One hop of the ring was the last to send, in the first second of the window."""
    parts = (whole(count=30), begun(at=59_950), burst("c", "d", 60_040, size=10 * MB), other())
    assert [nics for nics, _ in members(*parts, after=1)] == ["abcd", "efgh"]


@pytest.mark.parametrize(
    "back",
    [
        begun(at=70_000) + whole(start=72_000, count=20),
        ring("abc", every(2000, count=20, start=70_000)),
        ring(["a2", "b", "c", "d"], every(2000, count=20, start=70_000)),
    ],
)
def test_a_job_one_of_whose_nics_works_again_is_what_works_now(back: list[Row]) -> None:
    jobs = members(whole(), begun(), back, other(), after=1)
    nics = {row[2] for row in back} | {row[3] for row in back}
    assert [job for job, _ in jobs] == sorted(["".join(sorted(nics)), "efgh"])


@pytest.mark.parametrize(
    ("back", "nics"),
    [
        (burst("a", "b", 119_000) + burst("b", "c", 119_000), "abcd"),
        (burst("a", "b", 119_000) + burst("b", "d2", 119_000), "abd2"),
        (burst("a", "b", 119_000, size=400 * MB) + burst("b", "c", 119_000), "abc"),
    ],
    ids=["where it stood", "with another", "anew"],
)
def test_a_job_that_goes_on_just_before_the_window_ends_is_what_it_was(back: list[Row], nics: str) -> None:
    """Two of its four have sent, for less than a step."""
    assert [job for job, _ in members(whole(), begun(), back, other(), after=1)] == [nics, "efgh"]
    assert [job for job, _ in members(whole(), begun(), back, other(), after=0)] == ["abcd", "efgh"]


def test_two_that_hang_on_the_same_hosts_are_two() -> None:
    rails = [f"{addr}2" for addr in "abcd"]
    second = [*ring(rails, every(3100, count=10)), *begun(rails, 31_000)]
    jobs = [nics for nics, _ in members(whole(), begun(), second, other(), after=1)]
    assert jobs == ["a2b2c2d2", "abcd", "efgh"]


def test_rows_in_any_order_tell_the_same() -> None:
    table = visible(flows(whole(), begun(), other()), WINDOW.shifted(1))
    given = {"topology": HOSTS, "window": WINDOW.shifted(1), "settings": settings()}
    one = recognition(**taken("recognition", table, WINDOW.shifted(1), topology=HOSTS), **given)  # type: ignore[arg-type]
    shuffled = taken("recognition", table.sample(fraction=1, shuffle=True, seed=5), WINDOW.shifted(1), topology=HOSTS)
    two = recognition(**shuffled, **given)  # type: ignore[arg-type]
    for left, right in zip(one, two, strict=True):
        assert_frame_equal(left, right)
