"""What an analysis costs: platforms of three sizes, measurements in fresh processes, and the page.

`python -m bench run` measures, `python -m bench page` writes `docs/performance.md`; `make bench` does both.
"""
