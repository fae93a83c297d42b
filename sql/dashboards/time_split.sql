-- What the steps of the chosen jobs went to, by window: shares of the time of their NICs.
-- Grain: window_start_ns.  From: step_split_by_job, jobs.  Ratios 0 to 1, weighted by GPUs.
SELECT
    split.window_start AS time,
    sum(split.compute_ratio * jobs.endpoints) / sum(jobs.endpoints) AS computing,
    sum(split.communication_ratio * jobs.endpoints) / sum(jobs.endpoints) AS communication,
    sum(split.bubble_ratio * jobs.endpoints) / sum(jobs.endpoints) AS bubble,
    sum(split.waiting_ratio * jobs.endpoints) / sum(jobs.endpoints) AS waiting,
    sum(split.unexplained_ratio * jobs.endpoints) / sum(jobs.endpoints) AS unexplained
FROM step_split_by_job AS split
INNER JOIN jobs ON split.window_start_ns = jobs.window_start_ns AND split.job_id = jobs.job_id
WHERE split.window_start_ns >= $from_ns AND split.window_start_ns < $to_ns AND split.job_id IN ($job_id)
GROUP BY split.window_start
ORDER BY time;
