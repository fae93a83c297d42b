-- One row per valid flow record, as landed; stored by flow_start_ns within a window, with numbers for its texts.
-- Grain: one flow record; exact duplicates are kept once.  From: the files of flow records, checked.
CREATE OR REPLACE VIEW flows AS (
    SELECT
        landed.window_start_ns,          -- the window the row belongs to
        landed.flow_start_ns,            -- first packet
        landed.flow_end_ns,              -- last packet, never before the first
        source.value AS src_addr,        -- sending NIC
        destination.value AS dst_addr,   -- receiving NIC
        landed.src_port,                 -- sending port
        landed.dst_port,                 -- receiving port
        landed.protocol,                 -- 17 for RoCEv2, 6 for TCP
        landed.bytes,                    -- bytes of the record, above 0
        landed.packets,                  -- packets of the record
        path.value AS switch_path        -- switches crossed, in order; NULL when not known
    FROM stored.flows AS landed
    INNER JOIN stored.names AS source ON landed.src_addr = source.number
    INNER JOIN stored.names AS destination ON landed.dst_addr = destination.number
    LEFT JOIN stored.paths AS path ON landed.switch_path = path.number
);
