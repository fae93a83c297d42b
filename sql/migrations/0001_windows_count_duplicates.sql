-- From version 0 to 1: windows say how many of the quarantined records were exact duplicates, and why one was stopped.
ALTER TABLE windows ADD COLUMN reason VARCHAR;
ALTER TABLE windows ADD COLUMN rows_duplicate BIGINT;
UPDATE windows SET rows_duplicate = (
    SELECT count(*) FROM flows_quarantine
    WHERE flows_quarantine.window_start_ns = windows.window_start_ns AND flows_quarantine.reason = 'duplicate'
);
ALTER TABLE windows ALTER COLUMN rows_duplicate SET NOT NULL;
