-- One row per valid flow record, with numbers for its texts; sorted by flow_start_ns within a window.
-- Grain: one flow record.  From: the rows of view flows.
CREATE TABLE IF NOT EXISTS stored.flows (
    window_start_ns BIGINT NOT NULL,
    flow_start_ns BIGINT NOT NULL,
    flow_end_ns BIGINT NOT NULL,
    src_addr INTEGER NOT NULL,   -- of stored.names
    dst_addr INTEGER NOT NULL,   -- of stored.names
    src_port INTEGER,
    dst_port INTEGER,
    protocol INTEGER,
    bytes BIGINT NOT NULL,
    packets BIGINT,
    switch_path INTEGER          -- of stored.paths
);
