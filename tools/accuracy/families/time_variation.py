"""Platforms by how time goes: short and long steps, jobs that come, go and change, and steps that vary."""

from __future__ import annotations

from accuracy.families.scenario_draw import Content, Draw


def short_steps(seed: int) -> Content:
    """Steps of 0.2 to 1 s."""
    draw = Draw("short_steps", seed)
    quick: Content = {"model": "1b", "tp": 8, "overhead_ms": 2, "sequence": 2048}
    jobs = [
        draw.dense("quick", 4, (0.4, 1.0), **quick, pp=2, micro_batches=4),
        draw.dense("quicker", 2, (0.18, 0.3), **quick, pp=1, micro_batches=draw.one_of(1, 2)),
        draw.dense("quickest", 3, (0.3, 0.6), **quick, pp=1, micro_batches=2),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def long_steps(seed: int) -> Content:
    """Steps of about 15, 45 and 90 s, which fill a window or outlast it."""
    draw = Draw("long_steps", seed)
    jobs = [
        draw.dense("quarter", 4, (12, 20), tp=8, pp=2, micro_batches=16),
        draw.dense("slow", 8, (38, 50), tp=8, pp=draw.one_of(2, 4), micro_batches=32),
        draw.dense("slower", 4, (80, 90), tp=draw.one_of(4, 8), pp=1, micro_batches=32),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def lifecycle(seed: int) -> Content:
    """A job crashes and comes back with a spare host for one of its own, one grows, one starts and one stops."""
    draw = Draw("lifecycle", seed)
    jobs = [
        draw.dense("crashes", draw.one_of(4, 6), (3, 5), tp=8, pp=2),
        draw.dense("grows", 3, (3, 5), tp=8, pp=1, channels=1),
        draw.dense("starts", draw.one_of(2, 4), (3, 5), tp=8, pp=1, channels=1),
        draw.dense("stops", 4, (3, 5), tp=8, pp=2),
    ]
    crashes, grows = jobs[0]["hosts"], jobs[1]["hosts"]
    replaced, more = int(draw.rng.integers(len(crashes))), draw.one_of(1, 2)
    spare = draw.hosts(1)
    moved = [*crashes[:replaced], *spare, *crashes[replaced + 1 :]]
    restarts: list[Content] = [
        {"job": "crashes", "at_s": draw.between(70, 110), "pause_s": draw.between(20, 40), "hosts": moved},
        {
            "job": "grows",
            "at_s": draw.between(70, 130),
            "pause_s": draw.between(10, 30),
            "stop": "in_order",
            "hosts": [*grows, *draw.hosts(more)],
            "dp": len(grows) + more,
        },
    ]
    lives: list[Content] = [
        {"job": "starts", "start_s": draw.between(30, 90)},
        {"job": "stops", "end_s": draw.between(100, 160)},
    ]
    return {"jobs": jobs, "restarts": restarts, "lives": lives, "fabric": draw.fabric()}


def one_after_another(seed: int) -> Content:
    """Three jobs share four hosts, one after another; beside them one runs all the time."""
    draw = Draw("one_after_another", seed)
    shared = draw.hosts(4)
    first, second = draw.between(70, 90), draw.between(150, 170)
    jobs = [
        draw.dense("first", shared, (2, 4), tp=8, pp=2),
        draw.dense("second", shared, (2, 4), tp=draw.one_of(4, 8), pp=1, model="3b"),
        draw.dense("third", shared, (2, 4), tp=4, pp=2),
        draw.dense("beside", 4, (2, 4), tp=8),
    ]
    lives: list[Content] = [
        {"job": "first", "end_s": first},
        {"job": "second", "start_s": first + draw.between(8, 20), "end_s": second},
        {"job": "third", "start_s": second + draw.between(8, 20)},
    ]
    return {"jobs": jobs, "lives": lives, "fabric": draw.fabric()}


def uneven(seed: int) -> Content:
    """Samples of different lengths, packed sequences that cost more or less, pauses, and computing that gets slower."""
    draw = Draw("uneven", seed)
    jobs = [
        draw.dense("lengths", 4, tp=8, pp=2, micro_batches=8, sequence_spread=draw.between(0.1, 0.25)),
        draw.dense("costs", 4, tp=8, pp=2, micro_batches=8),
        draw.dense("pauses", 4, tp=8, pp=1),
        draw.dense("drifts", draw.one_of(3, 4), tp=8, pp=1),
    ]
    habits: list[Content] = [
        {"job": "costs", "cost_spread": draw.between(0.1, 0.25)},
        {"job": "pauses", "pauses": draw.between(0.05, 0.15), "pause_ms": draw.between(300, 900)},
        {"job": "drifts", "drift": draw.between(0.05, 0.15)},
    ]
    return {"jobs": jobs, "habits": habits, "fabric": draw.fabric()}
