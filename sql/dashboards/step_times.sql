-- Median duration of each job's steps, by window.
-- Grain: window_start_ns, job_id.  From: job_health_by_minute.  In s.
SELECT
    window_start AS time,
    job_id,
    median_step_s
FROM job_health_by_minute
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns AND job_id IN ($job_id) AND steps > 0
ORDER BY time, job_id;
