-- One row per subject that was ever diagnosed in a job: how often, how badly, and since when; the worst first.
-- Grain: job_id, subject_type, subject.  From: diagnoses.  Severity as ratio of time lost.
CREATE OR REPLACE VIEW slowest_subjects AS
SELECT
    job_id,
    subject_type,
    subject,
    count(DISTINCT window_start_ns) AS windows_diagnosed,
    string_agg(DISTINCT kind, ', ' ORDER BY kind) AS kinds,
    max(severity) AS worst_severity,
    max(score) AS highest_score,
    make_timestamp(min(start_ns) // 1000) AS first_seen,
    make_timestamp(max(end_ns) // 1000) AS last_seen,
    arg_max(explanation, severity) AS worst_explanation
FROM diagnoses
GROUP BY job_id, subject_type, subject
ORDER BY worst_severity DESC, job_id, subject_type, subject;
