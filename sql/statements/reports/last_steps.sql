-- When the last $steps steps of a job that began before a time began.
-- Grain: one row, with NULL where there is none.  From: steps.
SELECT min(start_ns) AS start_ns
FROM (
    SELECT start_ns
    FROM steps
    WHERE job_id = $job_id AND addr IS NULL AND start_ns < $until_ns
    ORDER BY start_ns DESC
    LIMIT $steps
);
