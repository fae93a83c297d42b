-- The jobs of the time, to choose from.
-- Grain: job_id.  From: jobs.
SELECT DISTINCT job_id
FROM jobs
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns
ORDER BY job_id;
