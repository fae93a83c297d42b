-- From version 2 to 3: diagnoses say how sure they are, their rank, what they cost and what proves them.
ALTER TABLE IF EXISTS diagnoses ADD COLUMN confidence DOUBLE;
ALTER TABLE IF EXISTS diagnoses ADD COLUMN rank INTEGER;
ALTER TABLE IF EXISTS diagnoses ADD COLUMN lost_gpu_s DOUBLE;
ALTER TABLE IF EXISTS diagnoses ADD COLUMN recoverable_gpu_s DOUBLE;
ALTER TABLE IF EXISTS diagnoses ADD COLUMN peers VARCHAR[];
ALTER TABLE IF EXISTS diagnoses ADD COLUMN evidence_sql VARCHAR;
