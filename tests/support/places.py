"""Where the tests' own data lie, whichever folder a test is in."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TESTS = PROJECT / "tests"
REAL = TESTS / "data" / "real"
"""Captures of real training, a folder each."""
