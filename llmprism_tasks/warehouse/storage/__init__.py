"""Storage: how rows lie in the tables. Addresses and other texts are stored as numbers, flows in one order."""
