-- From version 15 to 16: diagnoses tell how many single slow steps they are about, and what cannot be told apart.
ALTER TABLE IF EXISTS diagnoses ADD COLUMN steps INTEGER;
ALTER TABLE IF EXISTS diagnoses ADD COLUMN readings VARCHAR;
DROP VIEW IF EXISTS incidents;
