-- One row per job seen in a window.
-- Grain: window_start_ns, job_id.  From: flows, topology.
CREATE TABLE IF NOT EXISTS jobs (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    kind VARCHAR NOT NULL,            -- training or other
    endpoints INTEGER NOT NULL,       -- GPU NICs in the job
    hosts INTEGER NOT NULL,           -- hosts in the job
    tp INTEGER,                       -- tensor-parallel degree
    pp INTEGER,                       -- pipeline-parallel degree
    dp INTEGER,                       -- data-parallel degree
    confidence DOUBLE NOT NULL,       -- ratio, 0 to 1: confidence that the row is right
    cp INTEGER,                       -- context-parallel degree
    ep INTEGER,                       -- expert-parallel degree; experts live within the ranks of dp and cp
    sharded BOOLEAN,                  -- whether parameters are fully sharded (FSDP, ZeRO-3)
    micro_batches INTEGER,            -- pipeline messages of a pair per step and direction; NULL without a pipeline
    gradient_bytes BIGINT,            -- gradient bytes that a rank synchronises per step; NULL unless by all-reduce
    activation_bytes BIGINT,          -- bytes of one pipeline message
    period_ns BIGINT,                 -- length of the job's typical step
    jitter_ratio DOUBLE,              -- ratio: robust deviation of the job's step durations over their median
    explained_flows DOUBLE,           -- ratio: share of the job's bulk flows that are in pairs of a known kind
    explained_bytes DOUBLE,           -- ratio: share of the bulk flows' bytes that are in pairs of a known kind
    explained_nics DOUBLE,            -- ratio: share of the job's NICs that have a step
    recognition_confidence DOUBLE,    -- ratio, 0 to 1: confidence that members and kind are right, whatever the layout
    unlisted VARCHAR[]                -- addresses that train with the job, though the topology lacks them; NULL for none
);
