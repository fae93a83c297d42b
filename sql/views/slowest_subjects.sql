-- One row per subject that was ever diagnosed in a job: how often, how severely, at what cost, since when; worst first.
-- Grain: job_id, subject_type, subject.  From: diagnoses.  Severity as ratio of time lost, costs in GPU-seconds.
CREATE OR REPLACE VIEW slowest_subjects AS
WITH by_window AS (  -- several kinds in one window share one loss
    SELECT
        window_start_ns,
        job_id,
        subject_type,
        subject,
        list(kind) AS kinds,
        min(rank) AS best_rank,
        max(severity) AS severity,
        max(score) AS score,
        max(lost_gpu_s) AS lost_gpu_s,
        max(recoverable_gpu_s) AS recoverable_gpu_s,
        min(start_ns) AS start_ns,
        max(end_ns) AS end_ns,
        first(explanation ORDER BY severity DESC, kind) AS explanation
    FROM diagnoses
    GROUP BY window_start_ns, job_id, subject_type, subject
)

SELECT
    job_id,
    subject_type,
    subject,
    count(*) AS windows_diagnosed,
    count(*) FILTER (best_rank = 1) AS windows_first_suspect,
    array_to_string(list_sort(list_distinct(flatten(list(kinds)))), ', ') AS kinds,
    max(severity) AS worst_severity,
    max(score) AS highest_score,
    sum(lost_gpu_s) AS lost_gpu_s,
    sum(recoverable_gpu_s) AS recoverable_gpu_s,
    make_timestamp(min(start_ns) // 1000) AS first_seen,
    make_timestamp(max(end_ns) // 1000) AS last_seen,
    first(explanation ORDER BY severity DESC, window_start_ns) AS worst_explanation
FROM by_window
GROUP BY job_id, subject_type, subject
ORDER BY coalesce(sum(by_window.lost_gpu_s), 0) DESC, worst_severity DESC, job_id, subject_type, subject;
