-- One row per valid flow record, as landed; sorted by flow_start_ns within a window.
-- Grain: one flow record; exact duplicates are kept once.  From: the files of flow records, checked.
CREATE TABLE IF NOT EXISTS flows (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    flow_start_ns BIGINT NOT NULL,    -- first packet
    flow_end_ns BIGINT NOT NULL,      -- last packet, never before the first
    src_addr VARCHAR NOT NULL,        -- sending NIC
    dst_addr VARCHAR NOT NULL,        -- receiving NIC
    src_port INTEGER,                 -- sending port
    dst_port INTEGER,                 -- receiving port
    protocol INTEGER,                 -- 17 for RoCEv2, 6 for TCP
    bytes BIGINT NOT NULL,            -- bytes of the record, above 0
    packets BIGINT,                   -- packets of the record
    switch_path VARCHAR[]             -- switches crossed, in order; NULL when not known
);
