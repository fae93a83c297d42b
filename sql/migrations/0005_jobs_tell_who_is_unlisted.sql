-- From version 4 to 5: jobs tell which addresses that train with their members the topology lacks.
ALTER TABLE IF EXISTS jobs ADD COLUMN unlisted VARCHAR[];
