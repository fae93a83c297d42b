-- One row per directed pair of NICs of a job: its kind of traffic and its volume.
-- Grain: window_start_ns, job_id, src_addr, dst_addr.  From: flows, pair_steps.
CREATE TABLE IF NOT EXISTS pairs (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    job_id VARCHAR NOT NULL,          -- the job, the same from window to window while half of its members stay
    src_addr VARCHAR NOT NULL,        -- sending NIC
    dst_addr VARCHAR NOT NULL,        -- receiving NIC
    kind VARCHAR NOT NULL,            -- dp, pp, ep, cp or other
    flows BIGINT NOT NULL,            -- flow records in the window
    bytes BIGINT NOT NULL,            -- their bytes
    distinct_sizes INTEGER NOT NULL,  -- most frequent number of different record sizes in a step
    confidence DOUBLE NOT NULL        -- ratio, 0 to 1: confidence that the kind is right
);
