"""How right llmprism is: families of simulated platforms, the runs that measure both methods on them, and the page.

`python -m accuracy run` measures, `python -m accuracy page` writes `docs/accuracy.md`; `make accuracy` does both.
"""
