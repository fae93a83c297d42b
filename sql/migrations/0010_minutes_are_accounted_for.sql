-- From version 9 to 10: a row for each window that was ever expected, and a digest of the flows of each window.
-- What was landed before has no digest, so nothing is concluded from it. Windows that ended well are known as run.
-- Some files of earlier versions hold only a part of the tables.
CREATE TABLE IF NOT EXISTS windows (
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
ALTER TABLE windows ADD COLUMN flows_digest VARCHAR;
CREATE TABLE minutes (
    window_start_ns BIGINT NOT NULL,
    expected_ns BIGINT NOT NULL,
    expected_by VARCHAR NOT NULL,
    begun_ns BIGINT,
    seen VARCHAR[],
    runs INTEGER NOT NULL,
    last_run_ns BIGINT,
    due_since_ns BIGINT,
    due_reason VARCHAR,
    tries INTEGER NOT NULL,
    tried_ns BIGINT
);
INSERT INTO minutes BY NAME
SELECT
    window_start_ns,
    window_end_ns AS expected_ns,
    'run' AS expected_by,
    window_end_ns AS begun_ns,
    (status = 'done')::INTEGER AS runs,
    CASE status WHEN 'done' THEN window_end_ns END AS last_run_ns,
    0 AS tries
FROM windows
WHERE status IN ('done', 'stopped');
