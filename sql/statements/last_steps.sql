-- The time of a job's last $steps steps, before a time.
-- Grain: one row, with NULL where there is none.  From: steps.
SELECT
    min(start_ns) AS start_ns,
    max(end_ns) AS end_ns
FROM (
    SELECT start_ns, end_ns
    FROM steps
    WHERE job_id = $job_id AND addr IS NULL AND start_ns < $until_ns
    ORDER BY start_ns DESC
    LIMIT $steps
);
