-- From version 13 to 14: diagnoses tell how many single slow steps they are about.
ALTER TABLE IF EXISTS diagnoses ADD COLUMN steps INTEGER;
