"""Evaluation: compare a warehouse's tables with the truth about a run.

Everything is counted by window, because each window's result is used on its own.
"""

from llmprism_tasks.reports.evaluation.headline import all_figures
from llmprism_tasks.reports.evaluation.scores import TABLES, Scores, evaluate, together

__all__ = ["TABLES", "Scores", "all_figures", "evaluate", "together"]
