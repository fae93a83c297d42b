-- From version 3 to 4: the view incidents takes the place of troubles.
DROP VIEW IF EXISTS troubles;
