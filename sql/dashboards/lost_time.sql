-- GPU-seconds that each job lost, by window.
-- Grain: window_start_ns, job_id.  From: job_health_by_minute.
SELECT
    window_start AS time,
    job_id,
    coalesce(lost_gpu_s, 0) AS lost_gpu_s
FROM job_health_by_minute
WHERE window_start_ns >= $from_ns AND window_start_ns < $to_ns AND job_id IN ($job_id)
ORDER BY time, job_id;
