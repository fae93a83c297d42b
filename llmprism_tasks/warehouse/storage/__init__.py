"""Storage: how rows lie in the tables (texts as numbers, flows in one order), and how a window of them is lent out."""
