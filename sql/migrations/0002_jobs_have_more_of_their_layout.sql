-- From version 1 to 2: jobs have the rest of their layout, their figures and what explains them; members their place.
-- Some files of version 0 hold only what was landed.
ALTER TABLE IF EXISTS jobs ADD COLUMN cp INTEGER;
ALTER TABLE IF EXISTS jobs ADD COLUMN ep INTEGER;
ALTER TABLE IF EXISTS jobs ADD COLUMN sharded BOOLEAN;
ALTER TABLE IF EXISTS jobs ADD COLUMN micro_batches INTEGER;
ALTER TABLE IF EXISTS jobs ADD COLUMN gradient_bytes BIGINT;
ALTER TABLE IF EXISTS jobs ADD COLUMN activation_bytes BIGINT;
ALTER TABLE IF EXISTS jobs ADD COLUMN period_ns BIGINT;
ALTER TABLE IF EXISTS jobs ADD COLUMN jitter_ratio DOUBLE;
ALTER TABLE IF EXISTS jobs ADD COLUMN explained_flows DOUBLE;
ALTER TABLE IF EXISTS jobs ADD COLUMN explained_bytes DOUBLE;
ALTER TABLE IF EXISTS jobs ADD COLUMN explained_nics DOUBLE;
ALTER TABLE IF EXISTS jobs ADD COLUMN recognition_confidence DOUBLE;
ALTER TABLE IF EXISTS job_members ADD COLUMN pp_stage INTEGER;
ALTER TABLE IF EXISTS job_members ADD COLUMN dp_group INTEGER;
