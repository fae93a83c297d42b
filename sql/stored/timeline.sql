-- One row per phase of a NIC, with numbers for its texts; sorted by start_ns within a NIC.
-- Grain: window_start_ns, nic, start_ns, act.  From: the rows of view timeline.
CREATE TABLE IF NOT EXISTS stored.timeline (
    window_start_ns BIGINT NOT NULL,
    nic INTEGER NOT NULL,        -- of stored.nics
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    act INTEGER NOT NULL,        -- of stored.acts
    bytes BIGINT NOT NULL,
    step_index INTEGER NOT NULL
);
