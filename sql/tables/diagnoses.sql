-- One row per kind of fault and subject: what is wrong, and where.
-- Grain: window_start_ns, job_id, kind, subject_type, subject.  From: flows, topology, jobs, pairs, steps.
CREATE TABLE IF NOT EXISTS diagnoses (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    kind VARCHAR NOT NULL,            -- kind of fault, such as slow_compute; docs/diagnosis.md lists them
    subject_type VARCHAR NOT NULL,    -- job, host, addr, switch, link, dp_group or pp_stage
    subject VARCHAR NOT NULL,         -- name of the job, host, NIC, switch, link, group or stage
    start_ns BIGINT NOT NULL,         -- start of the first step or flow that shows the fault
    end_ns BIGINT NOT NULL,           -- end of the last step or flow that shows the fault
    score DOUBLE NOT NULL,            -- robust deviations from the peers or the past; 0 is normal
    severity DOUBLE NOT NULL,         -- ratio of time lost: 0.3 means steps take 1.3 times as long
    explanation VARCHAR NOT NULL,     -- one sentence with the measured numbers
    confidence DOUBLE,                -- ratio, 0 to 1: share of the loss that the subject explains
    rank INTEGER,                     -- rank among the job's suspects, 1 is the worst; NULL for an effect
    lost_gpu_s DOUBLE,                -- GPU-seconds the job lost in the interval
    recoverable_gpu_s DOUBLE,         -- GPU-seconds a repair would give back, by replay
    peers VARCHAR[],                  -- subjects that it is compared with; NULL for its own past
    evidence_sql VARCHAR,             -- a query that returns the flows behind the diagnosis
    candidates VARCHAR[],             -- devices of which one is at fault, the likeliest first
    odds DOUBLE[]                     -- probabilities of the candidates; they add up to 1
);
