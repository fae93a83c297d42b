"""Cuts make segments like the template, at long silences."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.stages.step_division.kernels.template_cuts import best_cuts


def cuts(moved: list[list[float]], silences: list[float]) -> list[int]:
    return best_cuts(np.array(moved, np.float64), np.array(silences), tolerance=0.1, most=0.25).tolist()


def test_segments_are_like_the_template() -> None:
    """Each step comes in two halves, of one stream and of the other."""
    moved = [[i // 2, (i - 1) // 2] for i in range(1, 12)]
    assert cuts(moved, [0.0] * 11) == [0, 2, 4, 6, 8, 10]


def test_of_two_cuts_that_serve_the_longer_silence_is_taken() -> None:
    moved = [[0.0], [0.97], [1.03], [2.0]]
    assert cuts(moved, [0.0, 0.5, 2.0, 0.0]) == [0, 2, 3]
    assert cuts(moved, [0.0, 2.0, 0.5, 0.0]) == [0, 1, 3]


def test_a_silence_makes_no_segment_that_is_unlike() -> None:
    assert cuts([[0.0], [0.5], [1.0]], [0.0, 3.0, 0.0]) == [0, 2]


def test_what_no_template_explains_is_passed_over() -> None:
    """A segment of five times the bytes has no place to cut; the steps before and after it are found."""
    assert cuts([[0.0], [1.0], [2.0], [7.0], [8.0]], [0.0] * 5) == [0, 1, 2, 3, 4]


def test_what_the_data_end_in_is_cut_off_at_its_silence() -> None:
    """A few messages after the last step, or the begin of one more; after another step they are part of it."""
    assert cuts([[0.0], [1.0], [2.0], [2.05]], [0.0, 0.0, 0.1, 0.0]) == [0, 1, 2, 3]
    assert cuts([[0.0], [1.0], [1.05], [2.0]], [0.0, 0.1, 0.0, 0.0]) == [0, 1, 3]
