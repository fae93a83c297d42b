-- A warehouse as it was before it carried a version: two windows, one with duplicates among its quarantined records.
CREATE TABLE flows (
    window_start_ns BIGINT NOT NULL, flow_start_ns BIGINT NOT NULL, flow_end_ns BIGINT NOT NULL, src_addr VARCHAR NOT NULL,
    dst_addr VARCHAR NOT NULL, src_port INTEGER, dst_port INTEGER, protocol INTEGER, bytes BIGINT NOT NULL, packets BIGINT,
    switch_path VARCHAR[]
);
CREATE TABLE flows_quarantine (
    window_start_ns BIGINT NOT NULL, reason VARCHAR NOT NULL, source_file VARCHAR NOT NULL, source_position BIGINT NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE windows (
    window_start_ns BIGINT NOT NULL, window_end_ns BIGINT NOT NULL, status VARCHAR NOT NULL, rows_read BIGINT NOT NULL,
    rows_landed BIGINT NOT NULL, rows_quarantined BIGINT NOT NULL, stage_ns VARCHAR NOT NULL,
    software_version VARCHAR NOT NULL
);
INSERT INTO flows_quarantine VALUES
(0, 'duplicate', 'a.csv', 1, '{}'), (0, 'duplicate', 'a.csv', 2, '{}'), (0, 'no_bytes', 'a.csv', 3, '{}');
INSERT INTO windows VALUES (0, 60, 'done', 5, 2, 3, '{}', '0'), (60, 120, 'landed', 1, 1, 0, '{}', '0');
