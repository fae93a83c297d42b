-- From version 11 to 12: windows tell which tables' rows were kept long enough and deleted.
ALTER TABLE IF EXISTS windows ADD COLUMN expired VARCHAR[];
