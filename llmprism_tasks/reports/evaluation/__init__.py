"""How right the results are: the warehouse's tables compared with the truth about a run.

Everything is counted by window, since each window's answer is used on its own.
"""

from llmprism_tasks.reports.evaluation.headline import all_figures
from llmprism_tasks.reports.evaluation.scores import TABLES, Scores, evaluate, together

__all__ = ["TABLES", "Scores", "all_figures", "evaluate", "together"]
