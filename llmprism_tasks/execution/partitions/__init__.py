"""Partitions of a platform: hosts that exchange no data with others, their stages, processes and hand-over."""
