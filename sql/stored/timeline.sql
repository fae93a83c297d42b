-- One row per phase of a NIC, its texts as numbers; sorted by start_ns within a NIC.
-- Grain: window_start_ns, nic, start_ns, act.  From: what the view timeline is to have.
CREATE TABLE IF NOT EXISTS stored.timeline (
    window_start_ns BIGINT NOT NULL,
    nic INTEGER NOT NULL,        -- of stored.nics
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    act INTEGER NOT NULL,        -- of stored.acts
    bytes BIGINT NOT NULL,
    step_index INTEGER NOT NULL
);
