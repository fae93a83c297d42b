"""Great Expectations imported in a quarter of the time: without what our own expectations have no use for.

It takes most of its time for what it would draw, store and send with, and for pandas and SQLAlchemy, through which it
would read data. Who asks for an expectation that it brings itself gets all of it.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from llmprism_tasks.postponed import hide, is_postponed, postpone, show

PACKAGE = "great_expectations"
OURS, BROUGHT = (f"llmprism_tasks.validation.{name}" for name in ("engine", "brought"))

KNOWN = ("expect_no_rows", "expect_table_row_count_to_equal")
"""Types of expectations that our own engine can compute."""

DRAWN = ("altair", "mistune", "scipy.stats")
"""Libraries that it would draw, and test distributions, with."""

PARTS = (
    *("checkpoint", "core", "core.factory", "data_context", "data_context.data_context", "datasource"),
    *("datasource.fluent", "execution_engine", "expectations", "expectations.core", "expectations.metrics"),
    *("metrics", "render.renderer", "render.renderer.content_block", "render.view", "render.view.view", "validator"),
)
"""Packages of its own of which single modules are enough."""

FORGOTTEN = (f"{PACKAGE}.", f"{OURS}.", "pydantic.v1.")
"""Packages to import again for all of it; the last one knows each of its checks, and takes none of them twice."""

CLASSES_OF_PANDAS = ("DataFrame", "Index", "Series")
"""What it names of pandas on its way in; as long as nobody imports pandas, nothing is an instance of them."""


_one_at_a_time = threading.RLock()


def ours() -> ModuleType:
    """Import what holds views against our own expectations; no other thread may import pandas meanwhile."""
    with _one_at_a_time:  # a module can be found before it is whole
        if OURS in sys.modules:
            return sys.modules[OURS]
        if PACKAGE not in sys.modules:
            for name in (PACKAGE, *(f"{PACKAGE}.{part}" for part in PARTS), *DRAWN):
                postpone(name)
            versions = importlib.import_module(f"{PACKAGE}._version").get_versions()
            vars(sys.modules[PACKAGE])["__version__"] = versions["version"]
        with _no_garbage(), _without_readers():
            return importlib.import_module(OURS)


def brought() -> ModuleType:
    """Import what holds views against expectations that Great Expectations brings, and Great Expectations whole.

    What was imported of it before does not know SQLAlchemy, and is forgotten.
    """
    with _one_at_a_time:
        if is_postponed(PACKAGE):
            for name in [name for name in sys.modules if f"{name}.".startswith(FORGOTTEN)]:
                del sys.modules[name]
        show("pandas")
        with _no_garbage():
            return importlib.import_module(BROUGHT)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Let nobody go through all that is imported again and again: there is no garbage there."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _without_readers() -> Iterator[None]:
    """Let there be no SQLAlchemy, which Great Expectations allows, and of pandas names only.

    What was imported already stays as it is.
    """
    pandas = ModuleType("pandas")
    vars(pandas).update({name: type(name, (), {}) for name in CLASSES_OF_PANDAS})
    stands_in = sys.modules.setdefault("pandas", pandas) is pandas
    hide("sqlalchemy")
    try:
        yield
    finally:
        show("sqlalchemy")
        if stands_in:
            del sys.modules["pandas"]
