"""Runs: what there is to measure, how it is measured, and the results that were kept."""
