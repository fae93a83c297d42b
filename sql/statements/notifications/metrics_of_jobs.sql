-- The jobs of a window: how long their steps took there, and what the time went to.
-- Grain: job_id.  From: job_health_by_minute, step_split_by_job.
SELECT
    health.job_id,
    health.endpoints,
    health.steps,
    health.median_step_s,
    health.longest_step_s,
    health.confidence,
    health.worst_severity,
    health.lost_gpu_s,
    split.compute_ratio,
    split.communication_ratio,
    split.bubble_ratio,
    split.waiting_ratio,
    split.unexplained_ratio
FROM job_health_by_minute AS health
LEFT JOIN step_split_by_job AS split
    ON health.window_start_ns = split.window_start_ns AND health.job_id = split.job_id
WHERE health.window_start_ns = $window_start_ns
ORDER BY health.job_id;
