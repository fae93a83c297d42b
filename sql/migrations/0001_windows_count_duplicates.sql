-- From version 0 to 1: windows say how many of the quarantined records were exact duplicates, and why one was stopped.
-- The table is made anew, for DuckDB sets no column NOT NULL in the transaction that fills it.
CREATE TEMP TABLE windows_before AS SELECT * FROM windows;
DROP TABLE windows;
CREATE TABLE windows (
    window_start_ns BIGINT NOT NULL,
    window_end_ns BIGINT NOT NULL,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    rows_read BIGINT NOT NULL,
    rows_landed BIGINT NOT NULL,
    rows_quarantined BIGINT NOT NULL,
    rows_duplicate BIGINT NOT NULL,
    stage_ns VARCHAR NOT NULL,
    software_version VARCHAR NOT NULL
);
INSERT INTO windows BY NAME
SELECT
    windows_before.*,
    count(flows_quarantine.window_start_ns) AS rows_duplicate
FROM windows_before
LEFT JOIN flows_quarantine
    ON
        windows_before.window_start_ns = flows_quarantine.window_start_ns
        AND flows_quarantine.reason = 'duplicate'
GROUP BY ALL;
DROP TABLE windows_before;
