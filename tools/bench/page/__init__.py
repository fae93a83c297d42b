"""The page `docs/performance.md`, written from the kept results."""
