"""Bayesian online change-point detection: by a textbook loop, by a public package, and as fast as ours is."""
