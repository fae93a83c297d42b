"""Jobs are the NICs that work together: by their bulk data, their hosts and their rhythm."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import polars as pl
import pytest
from handmade import (
    MB,
    MS,
    WINDOW,
    Row,
    burst,
    every,
    flows,
    messages,
    ring,
    settings,
    stages,
    taken,
    topology,
    visible,
)

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.recognition.phase import recognition

DEFAULT = settings()


def cluster(hosts: int, gpus: int) -> dict[str, list[str]]:
    """Return hosts `a`, `b`, … with NICs `a0`, `a1`, …"""
    return {chr(97 + h): [f"{chr(97 + h)}{g}" for g in range(gpus)] for h in range(hosts)}


def rail(hosts: Mapping[str, Sequence[str]], gpu: int, *, only: str | None = None) -> list[str]:
    return [nics[gpu] for host, nics in hosts.items() if only is None or host in only]


def recognised(
    hosts: Mapping[str, Sequence[str]],
    *parts: Iterable[Row],
    window: Window = WINDOW,
    values: Settings = DEFAULT,
    elsewhere: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, list[set[str]]]:
    """Return the jobs, and the members of each in the order of their smallest."""
    table = visible(flows(*parts), window, values.window.lookback_windows)
    jobs, members = recognition(
        **taken("recognition", table, window, values, topology=topology(hosts)),
        topology=topology(hosts),
        window=window,
        settings=values,
        elsewhere=elsewhere,
    )
    assert set(jobs["job_id"]) == set(members["job_id"])
    assert members["addr"].is_unique().all()
    return jobs, sorted((set(part["addr"]) for _, part in members.group_by("job_id")), key=min)


def test_no_flows_no_jobs() -> None:
    jobs, found = recognised(cluster(2, 1))
    assert found == []
    assert jobs.schema == frames.empty("jobs").schema


def test_a_job_has_its_members_hosts_and_kind() -> None:
    hosts = cluster(4, 2)
    jobs, found = recognised(hosts, ring(rail(hosts, 0), every(1000, count=20)))
    assert found == [{"a0", "b0", "c0", "d0"}]
    row = jobs.row(0, named=True)
    assert (row["kind"], row["endpoints"], row["hosts"], row["confidence"]) == ("training", 4, 4, 1.0)
    assert (row["tp"], row["pp"], row["dp"]) == (None, None, None)


def test_a_job_may_live_on_one_host() -> None:
    hosts = cluster(1, 4)
    jobs, found = recognised(hosts, ring(hosts["a"], every(1000, count=20)))
    assert found == [set(hosts["a"])]
    assert jobs["hosts"].to_list() == [1]


def test_nics_without_a_common_period_are_a_job_of_another_kind() -> None:
    hosts, draw = cluster(2, 1), random.Random(1)
    some = [
        (at, at + 1, *draw.choice([("a0", "b0"), ("b0", "a0")]), draw.randint(MB, 9 * MB))
        for at in sorted(draw.uniform(0, 50_000) for _ in range(60))
    ]
    jobs, found = recognised(hosts, some)
    assert found == [{"a0", "b0"}]
    assert jobs.select("kind", "confidence").row(0) == ("other", 0.5)


@pytest.mark.parametrize(("share", "kind"), [(0.05, "other"), (0.2, "training")])
def test_a_job_trains_if_a_tenth_of_what_is_sent_comes_again_and_again(share: float, kind: str) -> None:
    """A ring with steps of a second, and messages of any size at any time between two of its NICs."""
    hosts, draw = cluster(4, 1), random.Random(1)
    repeated = ring(rail(hosts, 0), every(1000, count=50), size=2 * MB)
    moved = sum(row[4] for row in repeated) * (1 / share - 1)
    sizes = [draw.uniform(0.2, 1) for _ in range(400)]
    at_will = [
        (at, at + 1, *draw.choice([("a0", "c0"), ("c0", "a0")]), int(size / sum(sizes) * moved))
        for size in sizes
        for at in [draw.uniform(0, 59_000)]
    ]
    jobs, found = recognised(hosts, repeated, at_will)
    assert found == [set(rail(hosts, 0))]
    assert jobs["kind"].to_list() == [kind]


@pytest.mark.parametrize(("last", "kind"), [("d0", "other"), ("a0", "training"), ("x", "training")])
def test_what_never_comes_back_is_no_training(last: str, kind: str) -> None:
    """A model is handed on from host to host every five seconds; or on to the first, whether by a known address."""
    hosts = cluster(4, 1)
    way = ["a0", "b0", "c0", last, *(["a0"] if last == "x" else [])]
    hops = [
        messages(src, dst, [5000 * i + 100 * j for i in range(11)], 50 * MB)
        for j, (src, dst) in enumerate(pairwise(way))
    ]
    jobs, _ = recognised(hosts, *hops)
    assert jobs["kind"].to_list() == [kind]


def test_addresses_outside_the_topology_join_nothing() -> None:
    """Two jobs write to one storage server; the server's own traffic is no job."""
    hosts = cluster(4, 1)
    work = [ring(["a0", "b0"], every(1000, count=20)), ring(["c0", "d0"], every(800, count=20))]
    storage = messages("a0", "storage", [0], 900 * MB) + messages("c0", "storage", [5], 900 * MB)
    unknown = ring(["x", "y"], every(500, count=20))
    assert recognised(hosts, *work, storage, unknown)[1] == [{"a0", "b0"}, {"c0", "d0"}]


@pytest.mark.parametrize(("size", "jobs"), [(16_384, 0), (16_385, 1)])
def test_control_messages_link_nobody(size: int, jobs: int) -> None:
    hosts = cluster(2, 1)
    work = messages("a0", "b0", every(50, count=1000), size) + messages("b0", "a0", every(50, count=1000), size)
    assert len(recognised(hosts, work)[1]) == jobs


def two_jobs(hosts: Mapping[str, Sequence[str]]) -> list[Row]:
    return ring(rail(hosts, 0, only="ab"), every(1000, count=50)) + ring(
        rail(hosts, 0, only="cd"), every(800, count=60)
    )


TWO_JOBS = [{"a0", "b0"}, {"c0", "d0"}]


def chatter(nics: Sequence[str], size: int, *, count: int = 300) -> list[Row]:
    draw = random.Random(11)
    return [(at, at + 1, *draw.sample(nics, 2), size) for at in (draw.uniform(0, 59_000) for _ in range(count))]


@pytest.mark.parametrize("size", [20_000, 120_000])
def test_chatter_joins_nobody_and_is_no_job(size: int) -> None:
    """Among ten NICs, of which four train and one stands beside two that do."""
    hosts = cluster(5, 2)
    nics = [nic for nics in hosts.values() for nic in nics]
    assert recognised(hosts, two_jobs(hosts), chatter(nics, size))[1] == TWO_JOBS
    assert recognised(hosts, chatter(nics, size))[1] == []


def test_many_small_messages_that_add_up_are_a_job_of_another_kind() -> None:
    hosts = cluster(5, 1)
    jobs, found = recognised(hosts, chatter(rail(hosts, 0), MB))
    assert found == [set(rail(hosts, 0))]
    assert jobs["kind"].to_list() == ["other"]


def test_a_copy_joins_no_jobs() -> None:
    """Whether it is one record, or cut into as many as there are steps."""
    hosts = cluster(4, 1)
    at_once = messages("a0", "c0", [20_000], 900 * MB)
    in_parts = messages("a0", "c0", every(1000, count=40), 20 * MB)
    for copy in (at_once, in_parts):
        assert recognised(hosts, two_jobs(hosts), copy)[1] == TWO_JOBS


@pytest.mark.parametrize("ways", [[("a0", "c0")], [("c0", "a0")]])
def test_beside_a_copy_of_a_terabyte_training_is_no_chatter(ways: list[tuple[str, str]]) -> None:
    hosts = cluster(4, 1)
    pairs = (["a0", "b0"], 1000, 60), (["c0", "d0"], 800, 75)
    work = [row for nics, period, count in pairs for row in ring(nics, every(period, count=count), size=10 * MB)]
    copies = [row for way in ways for row in messages(*way, [20_000], 1_000_000 * MB)]
    assert recognised(hosts, work, copies)[1] == TWO_JOBS


@pytest.mark.parametrize(("back", "jobs"), [(False, 0), (True, 1)])
def test_a_copy_on_its_own_is_no_job(back: bool, jobs: int) -> None:
    """Its records may come at equal distances, as steps do; but steps also bring something back."""
    hosts = cluster(2, 1)
    rows = messages("a0", "b0", every(10, count=5000), MB)
    if back:
        rows += messages("b0", "a0", every(10, count=5000, start=5), MB)
    assert len(recognised(hosts, rows)[1]) == jobs


def test_a_job_of_two_nics_whose_answers_have_ended_is_one_still() -> None:
    """In its last steps only one direction goes on; what came back before shows that it is no copy."""
    hosts = cluster(2, 1)
    rows = messages("a0", "b0", every(10, count=11_500), MB)
    rows += messages("b0", "a0", every(10, count=5_500, start=5), MB)
    assert len(recognised(hosts, rows, window=WINDOW.shifted(1))[1]) == 1


def test_a_copy_inside_a_pipeline_does_not_hide_its_rhythm() -> None:
    """Two rails of one job; through one of them goes twenty times what the pipeline sends."""
    hosts = cluster(4, 2)
    rails = [stages(rail(hosts, gpu), every(700, count=20)) for gpu in (0, 1)]
    copy = messages("a0", "c0", [5_000], 50_000 * MB)
    jobs, found = recognised(hosts, *rails, copy)
    assert jobs["kind"].to_list() == ["training"]
    assert len(found) == 1


@pytest.mark.parametrize("size", [900 * MB, 50_000 * MB])
def test_copies_there_and_back_join_no_jobs(size: int) -> None:
    """Also not if they are most of what their NICs send: no NIC passes on what it gets."""
    hosts = cluster(4, 1)
    copies = messages("a0", "c0", [20_000], size) + messages("d0", "b0", [40_000], size)
    assert recognised(hosts, two_jobs(hosts), copies)[1] == TWO_JOBS


def test_copies_there_and_back_between_two_nics_join_no_jobs() -> None:
    hosts = cluster(4, 1)
    copies = messages("a0", "c0", [20_000], 900 * MB) + messages("c0", "a0", [40_000], 900 * MB)
    assert recognised(hosts, two_jobs(hosts), copies)[1] == TWO_JOBS


@pytest.mark.parametrize(("every_nth", "members"), [(1, 3), (4, 2)])
def test_what_goes_on_adds_a_nic_whatever_its_sizes(every_nth: int, members: int) -> None:
    """Experts are called in each step, with sizes that never repeat."""
    hosts, draw = cluster(3, 1), random.Random(2)
    begins = every(1000, count=50)
    calls = [
        (at + draw.uniform(0, 500), at + 600, source, target, draw.randint(MB, 60 * MB))
        for at in begins[::every_nth]
        for source, target in (("b0", "c0"), ("c0", "b0"))
    ]
    found = recognised(hosts, ring(["a0", "b0"], begins), calls)[1]
    assert [len(one) for one in found if "a0" in one] == [members]


def test_a_job_that_has_just_begun_is_one_job() -> None:
    hosts = cluster(4, 1)
    assert recognised(hosts, ring(rail(hosts, 0), [58_000]))[1] == [set(rail(hosts, 0))]


def within_hosts(hosts: dict[str, list[str]], size: int) -> list[Row]:
    """Return what pipelines of two stages in each host send, a micro-batch each 300 ms."""
    rows: list[Row] = []
    for first, second in hosts.values():
        rows += messages(first, second, every(300, count=190), size)
        rows += messages(second, first, every(300, count=190, start=150), size)
    return rows


@pytest.mark.parametrize(("size", "jobs"), [(60 * MB, 1), (70 * MB, 1), (90 * MB, 3)])
def test_hops_of_a_ring_of_which_one_shows_a_rhythm_first_are_one_job(size: int, jobs: int) -> None:
    """Four pipelines, and gradients between their first stages: three hops send 80 MB three times, one so many bytes
    four times. It is like the others if these are about as many in all; else it joins only its own ends."""
    hosts = cluster(4, 2)
    pipelines = within_hosts(hosts, MB)
    nics = rail(hosts, 0)
    hops = [*pairwise(nics), (nics[-1], nics[0])]
    regular = [row for at in every(10_000, count=4) for row in burst(*hops[0], at, size=size)]
    others = [row for hop in hops[1:] for at in (4_000, 9_000, 31_000) for row in burst(*hop, at, size=80 * MB)]
    assert len(recognised(hosts, pipelines, regular, others)[1]) == jobs


@pytest.mark.parametrize(("sizes", "jobs"), [([80, 80], 1), ([80, 20], 4), ([80], 4)])
def test_a_ring_between_pipelines_whose_hops_send_alike_at_the_same_time_joins_them(
    sizes: list[int], jobs: int
) -> None:
    """Gradients come once in many micro-batches. Copies differ, though they add up alike."""
    hosts = cluster(4, 2)
    pipelines = within_hosts(hosts, 2 * MB)
    nics = rail(hosts, 0)
    hops = [
        row
        for i, hop in enumerate([*pairwise(nics), (nics[-1], nics[0])])
        for j, at in enumerate([9_000, 31_000][: len(sizes)])
        for row in burst(*hop, at, size=sizes[(i + j) % len(sizes)] * MB, parts=1)
    ]
    assert len(recognised(hosts, pipelines, hops)[1]) == jobs


def test_a_replaced_host_leaves_its_job_in_the_same_window() -> None:
    hosts = cluster(4, 1)
    before = ring(["a0", "b0", "c0"], every(1000, count=20))
    after = ring(["a0", "b0", "d0"], every(1000, count=20, start=35_000))
    assert recognised(hosts, before, after)[1] == [{"a0", "b0", "d0"}]
    patient = settings("recognition", longest_silence=50)
    assert recognised(hosts, before, after, values=patient)[1] == [{"a0", "b0", "c0", "d0"}]


def test_hosts_of_a_job_that_ended_are_in_the_jobs_that_they_began_since() -> None:
    """Two jobs on two hosts each of one whose last steps are in the same window: nothing joins these any more."""
    hosts = cluster(4, 1)
    before = ring(rail(hosts, 0), every(500, count=16))
    one = ring(["a0", "b0"], every(1100, count=30, start=20_000))
    other = ring(["c0", "d0"], every(700, count=50, start=22_000))
    assert recognised(hosts, before, one, other)[1] == [{"a0", "b0"}, {"c0", "d0"}]


def test_a_message_of_chatter_after_a_job_s_end_takes_no_member_away() -> None:
    """A pair of its NICs seems to go on, and the others to have left it."""
    hosts = cluster(4, 1)
    steps = ring(rail(hosts, 0), every(1000, count=40))
    assert recognised(hosts, steps, messages("a0", "b0", [58_000], 20_000))[1] == [set(rail(hosts, 0))]


def often(nic: str, seed: int) -> list[tuple[str, list[float], int]]:
    """Return a message in each step of 6.6 s, at any time, of any size; one of them is larger than all others."""
    draw = random.Random(seed)
    small = [(nic, [step * 6_600 + draw.uniform(0, 6_000)], round(MB * draw.uniform(0.1, 1))) for step in range(9)]
    return [*small, (nic, [draw.uniform(0, 50_000)], 20 * MB)]


@pytest.mark.parametrize(
    "chatter",
    [
        pytest.param([("b0", [58_000], 2 * MB), ("c0", [57_000], 2 * MB)], id="once"),
        pytest.param([("b0", [21_000, 49_000], 2 * MB), ("c0", [15_000, 44_000], 2 * MB)], id="twice"),
        pytest.param([*often("b0", seed=1), *often("c0", seed=2)], id="most of it at once"),
    ],
)
def test_chatter_makes_nobody_a_member(chatter: list[tuple[str, list[float], int]]) -> None:
    """With a NIC that does nothing else; to `b0`, from `c0`. Steps are long, so there may be a message in each."""
    hosts = cluster(4, 2)
    steps = ring(rail(hosts, 0), every(6_600, count=9))
    aside = [messages(*(("a1", nic) if nic == "b0" else (nic, "a1")), begins, size) for nic, begins, size in chatter]
    assert recognised(hosts, steps, *aside)[1] == [set(rail(hosts, 0))]


def test_confidence_is_the_share_that_keeps_the_rhythm() -> None:
    hosts, draw = cluster(3, 1), random.Random(2)
    begins = every(1000, count=50)
    random_sizes = [
        (at + 300, at + 400, source, target, draw.randint(20 * MB, 60 * MB))
        for at in begins
        for source, target in (("b0", "a0"), ("a0", "b0"))
    ]
    jobs, _ = recognised(hosts, ring(["a0", "b0", "c0"], begins), random_sizes)
    assert jobs["kind"].to_list() == ["training"]
    assert 0.5 < jobs["confidence"].item() < 1


def rails_on(first: str, second: str, **values: float) -> int:
    """Return how many jobs two rails are that share some of their hosts, and their steps."""
    hosts = cluster(8, 2)
    rows = [
        ring(rail(hosts, 0, only=first), every(1000, count=20)),
        ring(rail(hosts, 1, only=second), every(1000, count=20)),
    ]
    return len(recognised(hosts, *rows, values=settings("recognition", **values))[1])


@pytest.mark.parametrize(
    ("first", "second", "jobs"),
    [("abcd", "abcd", 1), ("abc", "bcd", 1), ("abcd", "cdef", 2)],
    ids=["the same", "half in common", "a third in common"],
)
def test_rails_on_similar_hosts_are_one_job(first: str, second: str, jobs: int) -> None:
    assert rails_on(first, second) == jobs


@pytest.mark.parametrize(("shift", "jobs"), [(0, 1), (100, 2)])
def test_hosts_that_exchange_nothing_are_of_one_job_if_they_begin_together(shift: float, jobs: int) -> None:
    """GPUs of a rack wait for each other over NVLink."""
    hosts, draw = cluster(8, 2), random.Random(5)
    begins = [at + draw.uniform(-50, 50) for at in every(1000, count=40, start=50)]
    islands = [
        [nic for nics in (rail(hosts, gpu, only=only) for gpu in (0, 1)) for nic in nics] for only in ("abcd", "efgh")
    ]
    rows = [ring(nics, [at + late for at in begins]) for nics, late in zip(islands, (0, shift), strict=True)]
    assert len(recognised(hosts, *rows)[1]) == jobs


def test_how_similar_hosts_must_be_can_be_set() -> None:
    assert rails_on("abc", "bcd", host_similarity=0.6) == 2
    assert rails_on("abcd", "cdef", host_similarity=0.3) == 1


def tenants(period: float = 1000, *, jitter: float = 0, shift: float = 0, count: int = 40, **values: float) -> int:
    """Return how many jobs two rails of the same hosts are; the second has its own period, shift and jitter."""
    hosts, draw = cluster(4, 2), random.Random(7)
    ends = [begin + shift + draw.uniform(-jitter, jitter) for begin in every(period, count=count, start=50)]
    rows = [ring(rail(hosts, 0), every(1000, count=count)), ring(rail(hosts, 1), ends)]
    return len(recognised(hosts, *rows, values=settings("recognition", **values))[1])


@pytest.mark.parametrize(("period", "jobs"), [(1000, 1), (1005, 2), (1100, 2), (1350, 2)])
def test_tenants_of_the_same_hosts_differ_by_their_period(period: float, jobs: int) -> None:
    """Half a percent apart is enough, for it adds up."""
    assert tenants(period) == jobs


@pytest.mark.parametrize("shift", [0, 250, 480, 500, 520, 999])
def test_rails_that_keep_their_distance_are_one_job(shift: float) -> None:
    assert tenants(shift=shift, jitter=5) == 1


@pytest.mark.parametrize(("jitter", "jobs"), [(4, 1), (100, 1), (400, 2)])
def test_ends_that_are_near_each_other_are_of_one_job_and_those_at_any_distance_are_not(
    jitter: float, jobs: int
) -> None:
    assert tenants(jitter=jitter) == jobs


def test_how_wrong_an_end_may_be_can_be_set() -> None:
    assert tenants(1010, count=20) == 2
    assert tenants(1010, count=20, phase_tolerance_ms=200) == 1


@pytest.mark.parametrize(("walk", "jobs"), [(0, 1), (3, 2)])
def test_steps_that_walk_away_are_another_job_s_however_they_jitter(walk: float, jobs: int) -> None:
    """Both lengthen some of their steps by 100 ms, together; one walks away from the other by a few ms a step."""
    hosts, draw = cluster(4, 2), random.Random(3)
    begins = list(accumulate(draw.choice((950, 1050)) for _ in range(40)))
    others = [begin + 200 + walk * i + draw.uniform(-1, 1) for i, begin in enumerate(begins)]
    assert len(recognised(hosts, ring(rail(hosts, 0), begins), ring(rail(hosts, 1), others))[1]) == jobs


@pytest.mark.parametrize(("own", "jobs"), [(0, 1), (3, 1), (80, 2)])
def test_a_ring_that_a_fault_makes_slow_stays_in_its_job(own: float, jobs: int) -> None:
    """From the middle on it ends 300 ms later. It shares the jitter of the job's steps, but for `own` ms a step."""
    hosts, draw = cluster(4, 2), random.Random(3)
    begins = list(accumulate(draw.uniform(960, 1040) for _ in range(40)))
    drift = list(accumulate(draw.uniform(-own, own) for _ in range(40)))
    late = [begin + off + (300 if i >= 20 else 0) for i, (begin, off) in enumerate(zip(begins, drift, strict=True))]
    assert len(recognised(hosts, ring(rail(hosts, 0), begins), ring(rail(hosts, 1), late))[1]) == jobs


@pytest.mark.parametrize(("longer", "jobs"), [(0, 1), (1.01, 2)])
def test_jobs_on_the_same_busy_hosts_share_some_of_their_jitter(longer: float, jobs: int) -> None:
    """Steps of both vary by the same 100 ms; those of one last 1 % longer."""
    hosts, draw = cluster(4, 2), random.Random(5)
    lengths = [draw.uniform(950, 1050) for _ in range(50)]
    begins = list(accumulate(lengths))
    others = list(accumulate(length * longer for length in lengths)) if longer else [begin + 200 for begin in begins]
    assert len(recognised(hosts, ring(rail(hosts, 0), begins), ring(rail(hosts, 1), others))[1]) == jobs


def beside_a_wider_job(after: Sequence[float], *, count: int = 40, period: float = 1000, ends: str = "ab") -> int:
    """Return how many jobs there are where a ring over six hosts ends its steps after 100 ms, and other NICs of two of
    these hosts exchange something, from so many ms after that on in each step."""
    hosts, draw = cluster(8, 2), random.Random(4)
    since = 59_000 - 1000.0 * count
    begins = list(accumulate((draw.uniform(950, 1050) for _ in range(count - 1)), initial=since))
    others = begins if period == 1000 else every(period, count=count, start=since)
    inner = [begin + 100 + late for begin, late in zip(others, after, strict=False)]
    rows = [
        ring(rail(hosts, 0, only="abcdef"), begins),
        ring([f"{ends[0]}1", f"{ends[1]}1"], inner, length=40, size=20 * MB),
    ]
    return len(recognised(hosts, *rows)[1])


@pytest.mark.parametrize(("wander", "jobs"), [(15, 1), (60, 1), (500, 2)])
def test_nics_that_go_on_when_a_wider_job_s_gradients_are_there_are_part_of_it(wander: float, jobs: int) -> None:
    draw = random.Random(8)
    assert beside_a_wider_job([50 + draw.uniform(-wander, wander) for _ in range(40)]) == jobs


@pytest.mark.parametrize(("count", "jobs"), [(12, 1), (3, 2)])
def test_a_few_steps_do_not_make_nics_part_of_a_wider_job(count: int, jobs: int) -> None:
    assert beside_a_wider_job([50.0] * count, count=count) == jobs


def test_a_tenant_on_a_few_of_a_job_s_hosts_is_a_job_of_its_own() -> None:
    assert beside_a_wider_job([50.0] * 40, period=1030) == 2


@pytest.mark.parametrize(("like", "period", "jobs"), [([], 1000, 2), (["cd"], 1000, 1), (["cd", "ef"], 1030, 2)])
def test_what_other_nics_are_to_a_wider_job_counts_for_one_more(like: list[str], period: float, jobs: int) -> None:
    """NICs of two hosts whose steps end at any time are part of the job where those of two other hosts are; a job with
    its own period is not."""
    hosts, draw = cluster(6, 2), random.Random(4)
    begins = list(accumulate((draw.uniform(950, 1050) for _ in range(39)), initial=19_000.0))
    own = begins if period == 1000 else every(period, count=40, start=19_000)
    rows = [ring(rail(hosts, 0), begins)]
    for (first, second), after, wander in [
        ("ab", own, 400 if period == 1000 else 15),
        *((ends, begins, 15) for ends in like),
    ]:
        draw = random.Random(8)
        inner = [begin + 150 + draw.uniform(-wander, wander) for begin in after]
        rows.append(ring([f"{first}1", f"{second}1"], inner, length=40, size=20 * MB))
    assert len(recognised(hosts, *rows)[1]) == jobs


def test_nics_of_other_hosts_are_no_part_of_a_job_that_they_go_on_with() -> None:
    assert beside_a_wider_job([50.0] * 40, ends="gh") == 2
    assert beside_a_wider_job([50.0] * 40, ends="ag") == 2


def at_will(nics: Sequence[str], seed: int) -> list[Row]:
    """Return messages of any size at any time, either way between neighbours."""
    draw = random.Random(seed)
    return [
        (at, at + 1, *draw.choice([(one, other), (other, one)]), draw.randint(MB, 9 * MB))
        for one, other in pairwise(nics)
        for at in sorted(draw.uniform(0, 59_000) for _ in range(40))
    ]


@pytest.mark.parametrize(("only", "jobs"), [("abcdef", 1), ("ab", 2)])
def test_who_shares_all_hosts_is_one_job_until_something_says_otherwise(only: str, jobs: int) -> None:
    """And on a few of the hosts it is as likely to be another."""
    hosts = cluster(6, 2)
    assert len(recognised(hosts, at_will(rail(hosts, 0), 1), at_will(rail(hosts, 1, only=only), 2))[1]) == jobs


@pytest.mark.parametrize(("late", "jobs"), [(1000, 1), (20_300, 2)])
def test_rails_that_are_seen_to_begin_within_a_part_of_a_step_are_one_job(late: int, jobs: int) -> None:
    """Steps of 10 s, of which too few are seen to keep a distance; others have been at work for long."""
    hosts = cluster(8, 2)
    rows = [
        ring(rail(hosts, 0, only="abcdef"), every(10_000, count=4, start=15_000)),
        ring(rail(hosts, 1, only="ab"), every(10_000, count=2, start=15_000 + late)),
        ring(rail(hosts, 0, only="gh"), every(1000, count=59)),
    ]
    assert len(recognised(hosts, *rows)[1]) == 1 + jobs


@pytest.mark.parametrize("seen_ms", [0, 4_000])
def test_a_job_is_as_sure_where_others_that_were_seen_before_it_are_in_its_partition_or_not(seen_ms: int) -> None:
    """What both of its rails have done since then says the same, wherever the others are."""
    hosts = cluster(8, 2)
    rows = [
        ring(rail(hosts, 0, only="abcdef"), every(10_000, count=4, start=15_000)),
        ring(rail(hosts, 1, only="ab"), every(10_000, count=2, start=16_000)),
    ]
    others = ring(rail(hosts, 0, only="gh"), every(1000, count=40, start=seen_ms))
    away = flows(others).select("flow_start_ns").sort("flow_start_ns")
    both = [recognised(hosts, *rows, others)[0], recognised(hosts, *rows, elsewhere=away)[0]]
    whole, part = (jobs.filter(endpoints=8)["confidence"].to_list() for jobs in both)
    assert whole == part != []


@pytest.mark.parametrize(("size", "jobs"), [(MB, 1), (60 * MB, 2)])
def test_a_message_of_chatter_is_not_when_a_rail_begins(size: int, jobs: int) -> None:
    """Half as large as its pair's others is a first transfer."""
    hosts = cluster(8, 2)
    rows = [
        ring(rail(hosts, 0, only="abcdef"), every(10_000, count=4, start=25_000), parts=1, size=80 * MB),
        ring(rail(hosts, 1, only="ab"), every(10_000, count=3, start=25_500), parts=1, size=80 * MB),
        ring(rail(hosts, 0, only="gh"), every(1000, count=59)),
        messages("a1", "b1", [3000], size),
    ]
    assert len(recognised(hosts, *rows)[1]) == 1 + jobs


@pytest.mark.parametrize(("late", "jobs"), [(100, 1), (20_000, 2)])
def test_a_rail_that_sends_gradients_besides_begins_with_its_tokens(late: int, jobs: int) -> None:
    """Tokens of any size all the time on both rails, on one of them a few larger gradients at the end of each step."""
    hosts = cluster(4, 2)
    work = [
        [row for row in at_will(rail(hosts, gpu), 10 + gpu) if row[0] > 10_000 + after]
        for gpu, after in ((0, 0), (1, late))
    ]
    ways = [rail(hosts, 0), rail(hosts, 0)[::-1]]
    gradients = [ring(way, every(10_000, count=4, start=18_000), parts=1, size=800 * MB) for way in ways]
    assert len(recognised(hosts, *work, *gradients)[1]) == jobs


@pytest.mark.parametrize("until", [59_900, 82_000])
def test_a_copy_that_goes_on_ends_no_step_of_the_nics_that_it_goes_between(until: int) -> None:
    """Two tenants, one with steps twice as long as the other's, of which the distance walks a little."""
    hosts, draw = cluster(4, 2), random.Random(5)
    one = list(accumulate((draw.uniform(1620, 1650) for _ in range(34)), initial=1000))
    two = list(accumulate((draw.uniform(3240, 3280) for _ in range(16)), initial=2000))
    copy = [(one[33] + 50, until, "a0", "b0", 390 * MB)]
    rows = [ring(rail(hosts, 0), one, parts=1), ring(rail(hosts, 1), two), copy]
    assert recognised(hosts, *rows)[1] == [set(rail(hosts, gpu)) for gpu in (0, 1)]


@pytest.mark.parametrize(("count", "low", "high"), [(3, 0.5, 0.95), (4, 0.95, 1), (6, 0.99, 1)])
def test_the_more_steps_the_surer_are_tenants(count: int, low: float, high: float) -> None:
    hosts = cluster(4, 2)
    rows = [ring(rail(hosts, gpu), every(7_000 - 900 * gpu, count=count)) for gpu in (0, 1)]
    jobs, found = recognised(hosts, *rows)
    assert len(found) == 2
    assert jobs["confidence"].is_between(low, high).all()


@pytest.mark.parametrize(("last", "jobs"), [(58_000, 1), (44_000, 0)])
def test_a_silent_pair_is_at_work_as_long_as_its_period_explains_it(last: float, jobs: int) -> None:
    """Steps of 45 s: in the second window, 62 s or 76 s after the last flow, 1.5 periods are 67.5 s."""
    hosts = cluster(2, 1)
    steps = ring(["a0", "b0"], [last - 45_000 * i for i in range(4)][::-1])
    begin = WINDOW.shifted(-4)
    moved = [(start + 240_000, end + 240_000, src, dst, size) for start, end, src, dst, size in steps]
    table = flows(moved, base=begin)
    found, _ = recognition(
        **taken("recognition", table, WINDOW.shifted(1), topology=topology(hosts)),
        topology=topology(hosts),
        window=WINDOW.shifted(1),
        settings=DEFAULT,
    )
    assert found.height == jobs


def test_a_pair_without_a_rhythm_is_at_work_only_where_it_sends() -> None:
    hosts = cluster(2, 1)
    once = messages("a0", "b0", [59_000], 50 * MB) + messages("b0", "a0", [59_000], 50 * MB)
    assert len(recognised(hosts, once)[1]) == 1
    assert recognised(hosts, once, window=WINDOW.shifted(1))[1] == []


@pytest.mark.parametrize(("at", "jobs"), [(56_000, 1), (40_000, 2)])
def test_gradients_that_were_sent_once_are_at_work_for_as_long_as_they_were_awaited(at: float, jobs: int) -> None:
    """Sent in buckets, 51 s or 35 s after both NICs began: 1.5 times as long is 76 s or 52 s, and 63 s or 79 s are over
    at the end of the next window."""
    hosts = cluster(4, 1)
    passes = every(400, count=290, start=5_000)
    rows = [stages(replica, passes, micro_batches=1) for replica in (["a0", "b0"], ["c0", "d0"])]
    buckets = every(120, count=5, start=at)
    rows += [ring(replicas, buckets, size=50 * MB) for replicas in (["a0", "c0"], ["b0", "d0"])]
    assert len(recognised(hosts, *rows)[1]) == 1
    assert len(recognised(hosts, *rows, window=WINDOW.shifted(1))[1]) == jobs


def test_requests_between_nics_without_a_rhythm_are_at_work_only_where_they_are_sent() -> None:
    """Servers answer each other at any time; who asked another group once, a while ago, is no part of it."""
    hosts, chance = cluster(4, 1), random.Random(3)
    rows = [
        messages(src, dst, [chance.uniform(0, 120_000)], round(chance.uniform(5, 80) * MB))
        for one, other in (("a0", "b0"), ("c0", "d0"))
        for src, dst in ((one, other), (other, one))
        for _ in range(40)
    ]
    rows += [messages(src, dst, [56_000], 300 * MB) for src, dst in (("a0", "c0"), ("c0", "a0"))]
    assert len(recognised(hosts, *rows)[1]) == 1
    assert len(recognised(hosts, *rows, window=WINDOW.shifted(1))[1]) == 2


def test_how_long_silence_is_believed_can_be_set() -> None:
    hosts = cluster(2, 1)
    rows = ring(["a0", "b0"], every(10_000, count=6))
    following = WINDOW.shifted(1)
    assert recognised(hosts, rows, window=following)[1] == []
    patient = settings("recognition", silent_periods=8)
    patient = replace(patient, traffic=replace(patient.traffic, restart_ratio=100))
    assert recognised(hosts, rows, window=following, values=patient)[1] == [{"a0", "b0"}]


def names(hosts: Mapping[str, Sequence[str]], rows: list[Row], windows: Iterable[int]) -> list[str]:
    """Return the name of the one job that each window finds."""
    found = [recognised(hosts, rows, window=WINDOW.shifted(i))[0] for i in windows]
    return [jobs["job_id"].item() for jobs in found]


def test_a_job_keeps_its_name_while_half_of_its_members_stay() -> None:
    """Two of four NICs are replaced after the second minute."""
    hosts = cluster(6, 1)
    rows = ring(["a0", "b0", "c0", "d0"], every(1000, count=120))
    rows += ring(["c0", "d0", "e0", "f0"], every(1000, count=120, start=120_000))
    assert len(set(names(hosts, rows, range(4)))) == 1


def test_a_job_that_comes_back_without_the_host_it_was_named_after_keeps_its_name() -> None:
    """Each host in turn is replaced while the job is silent, for half a minute across the end of its first."""
    hosts = cluster(5, 1)
    before = ring(["a0", "b0", "c0", "d0"], every(1000, count=50))
    for gone in "abcd":
        rest = [f"{host}0" for host in "abcde" if host != gone]
        assert len(set(names(hosts, before + ring(rest, every(1000, count=95, start=80_000)), range(3)))) == 1


def test_a_new_job_is_not_named_after_those_who_had_its_nics_before() -> None:
    """Three of its four NICs come from elsewhere: it is the job of nobody who left."""
    hosts = cluster(7, 1)
    old = ring(["a0", "b0", "c0", "d0"], every(1000, count=120))
    new = ring(["d0", "e0", "f0", "g0"], every(1000, count=120, start=120_000))
    assert names(hosts, old + new, [3]) == names(hosts, new, [3])


def two_names(*parts: Iterable[Row], window: Window) -> int:
    """Return how many names two jobs have that are found in a window."""
    jobs, found = recognised(cluster(4, 1), *parts, window=window)
    assert [len(members) for members in found] == [2, 2]
    return jobs["job_id"].n_unique()


def test_two_halves_of_a_job_have_two_names() -> None:
    whole = ring(["a0", "b0", "c0", "d0"], every(1000, count=60))
    halves = [ring(some, every(700, count=160, start=60_000)) for some in (["a0", "b0"], ["c0", "d0"])]
    assert two_names(whole, *halves, window=WINDOW.shifted(2)) == 2


def test_jobs_that_once_exchanged_data_have_two_names() -> None:
    """A copy of some weights, minutes ago, linked both."""
    jobs = [ring(["a0", "b0"], every(1000, count=120)), ring(["c0", "d0"], every(800, count=150))]
    assert two_names(*jobs, messages("a0", "c0", [5000], 90 * MB), window=WINDOW.shifted(1)) == 2


def test_a_job_s_name_does_not_depend_on_other_jobs() -> None:
    hosts = cluster(4, 1)
    own = ring(["a0", "b0"], every(1000, count=50))
    alone, _ = recognised(hosts, own)
    both, _ = recognised(hosts, own, ring(["c0", "d0"], every(800, count=50)))
    assert set(alone["job_id"]) < set(both["job_id"])
    assert both["job_id"].is_unique().all()


def test_the_window_s_time_is_in_every_row() -> None:
    hosts = cluster(2, 1)
    rows = ring(["a0", "b0"], every(1000, count=100))
    table = flows(rows)
    jobs, members = recognition(
        **taken("recognition", visible(table, WINDOW.shifted(1)), WINDOW.shifted(1), topology=topology(hosts)),
        topology=topology(hosts),
        window=WINDOW.shifted(1),
        settings=DEFAULT,
    )
    starts = {*jobs["window_start_ns"], *members["window_start_ns"]}
    assert starts == {WINDOW.start_ns + 60_000 * MS}
