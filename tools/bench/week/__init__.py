"""A week of results of a large platform, made straight in the result tables, and how fast its pages open."""
