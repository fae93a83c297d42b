"""Families of simulated platforms: how a seed draws one, and what is expected of the results."""
