-- From version 12 to 13: diagnoses have candidates, the devices of which one is at fault, and their probabilities.
ALTER TABLE IF EXISTS diagnoses ADD COLUMN candidates VARCHAR[];
ALTER TABLE IF EXISTS diagnoses ADD COLUMN odds DOUBLE[];
