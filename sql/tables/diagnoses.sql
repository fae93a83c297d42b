-- One row per trouble and subject: what is wrong, and with whom.
-- Grain: window_start_ns, job_id, kind, subject_type, subject.  From: flows, topology, jobs, pairs, steps.
CREATE TABLE IF NOT EXISTS diagnoses (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    kind VARCHAR NOT NULL,            -- what is wrong, such as slow_compute; docs/diagnosis.md has them all
    subject_type VARCHAR NOT NULL,    -- job, host, addr, switch, link, dp_group or pp_stage
    subject VARCHAR NOT NULL,         -- who
    start_ns BIGINT NOT NULL,         -- first step or flow it shows in
    end_ns BIGINT NOT NULL,           -- last step or flow it shows in
    score DOUBLE NOT NULL,            -- robust deviations from the peers or the past; 0 is normal
    severity DOUBLE NOT NULL,         -- ratio of time lost: 0.3 means steps take 1.3 times as long
    explanation VARCHAR NOT NULL,     -- one sentence with the numbers behind it
    confidence DOUBLE,                -- ratio, 0 to 1: how much of the loss this explains
    rank INTEGER,                     -- place among the job's suspects, 1 first; NULL for an effect
    lost_gpu_s DOUBLE,                -- GPU-seconds the job lost in the interval
    recoverable_gpu_s DOUBLE,         -- GPU-seconds a repair would give back, by replay
    peers VARCHAR[],                  -- who the subject is compared with; NULL for its own past
    evidence_sql VARCHAR              -- a query that returns the flows behind it
);
