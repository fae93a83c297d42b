"""`python -m llmprism_tasks.cli.compile_kernels`: compile all kernels, and keep their machine code in Numba's cache.

`make setup` and the Docker image run this. It takes about a minute; without it, the first process that imports the
stages does the same. Run it again after a change to a subroutine (see `numerics/jit.py`).
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1]


def main() -> None:
    """Compile all kernels anew."""
    clear(FOLDER)
    load()


def clear(folder: Path) -> None:
    """Remove the machine code that Numba keeps beside the sources in a folder.

    Where `NUMBA_CACHE_DIR` names another folder, that one is left as it is: name a new one for each version.
    """
    for kept in folder.rglob("__pycache__/*.nb[ic]"):
        kept.unlink()


def load() -> None:
    """Load all kernels, and compile those that are not in Numba's cache: importing their modules does it."""
    from llmprism_tasks.execution import analyze  # noqa: F401 - importing compiles
    from llmprism_tasks.execution.partitions import stage_runner

    for method in ("joint", "published"):
        stage_runner.stage_functions(method)


if __name__ == "__main__":
    main()
