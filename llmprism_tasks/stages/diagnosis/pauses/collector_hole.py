"""Collector hole: a time in which nothing of the platform was recorded, so that jobs seem to stand still.

A collector that loses all records for some seconds, as when an exporter restarts, makes a step of each job seem to be
several. Who goes on meanwhile shows that the collector works. Where all others fell silent with the job, for longer
than they are together in any other of its steps, the collector did.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.robust import Flags, Integers


def in_hole(
    others_ns: Integers, spans: tuple[Integers, Integers], silences: tuple[Integers, Integers], usual_ns: float
) -> Flags:
    """Return in which steps everybody else fell silent with a job, as nobody does but by a collector that stops.

    Parameters
    ----------
    others_ns : shape (flows,), when each flow that is none of the job's training began, ascending
    spans : start and end of steps in which the job stood still, ns, each of shape (steps,)
    silences : start and length of the longest silence of each, ns, each of shape (steps,)
    usual_ns : usual length of a step: at the beginning and at the end of a silence others may be up to a step later
    """
    begins, backs = others_ns[:-1], others_ns[1:]
    quiet = backs - begins
    starts, ends = (edge[:, np.newaxis] for edge in spans)
    beside = ((begins < ends) & (backs > starts)).any(axis=0)
    usual_quiet = quiet[~beside].max(initial=0)
    since, until = silences[0][:, np.newaxis], silences[0][:, np.newaxis] + silences[1][:, np.newaxis]
    shared = np.minimum(backs, until) - np.maximum(begins, since)
    enough = (shared >= silences[1][:, np.newaxis] - usual_ns) & (quiet > usual_quiet)
    return np.asarray((enough & (shared > 0)).any(axis=1))
