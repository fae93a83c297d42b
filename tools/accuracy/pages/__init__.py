"""The pages `docs/accuracy.md` and `docs/diagnosis.md`, written from the kept results."""
