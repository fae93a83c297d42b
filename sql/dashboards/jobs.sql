-- The chosen jobs as of their last window of the time.
-- Grain: job_id.  From: job_health_by_minute.  Durations in s.
SELECT
    job_id,
    endpoints AS gpus,
    hosts,
    tp,
    pp,
    dp,
    median_step_s,
    worst_severity,
    confidence,
    window_start AS last_seen
FROM job_health_by_minute
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns AND job_id IN ($job_id)
QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY window_start_ns DESC) = 1
ORDER BY gpus DESC, job_id;
