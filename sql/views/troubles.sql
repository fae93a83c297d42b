-- One row per trouble: a diagnosis that was made in one window after another, as one thing with a beginning and an end.
-- A single window without it does not end it, for a long step may leave a window with nothing to judge.
-- Grain: job_id, kind, subject_type, subject, first_seen_ns.  From: diagnoses, windows.  Severity as ratio of time lost.
CREATE OR REPLACE VIEW troubles AS
WITH diagnosed AS (
    SELECT
        diagnoses.*,
        windows.window_end_ns - windows.window_start_ns AS length_ns
    FROM diagnoses
    LEFT JOIN windows ON diagnoses.window_start_ns = windows.window_start_ns
),

beginnings AS (
    SELECT
        *,
        coalesce(
            window_start_ns - lag(window_start_ns) OVER (
                PARTITION BY job_id, kind, subject_type, subject ORDER BY window_start_ns
            ) <= 2 * length_ns,
            FALSE
        ) AS goes_on
    FROM diagnosed
),

numbered AS (
    SELECT
        *,
        sum(CASE WHEN goes_on THEN 0 ELSE 1 END) OVER (
            PARTITION BY job_id, kind, subject_type, subject ORDER BY window_start_ns
        ) AS number_of_trouble
    FROM beginnings
)

SELECT
    job_id,
    kind,
    subject_type,
    subject,
    make_timestamp(min(start_ns) // 1000) AS first_seen,
    make_timestamp(max(end_ns) // 1000) AS last_seen,
    count(*) AS windows,
    max(severity) AS peak_severity,
    max(score) AS peak_score,
    arg_max(explanation, severity) AS explanation,  -- of the worst window
    min(start_ns) AS first_seen_ns,
    max(end_ns) AS last_seen_ns,
    max(window_start_ns) AS last_window_start_ns
FROM numbered
GROUP BY job_id, kind, subject_type, subject, number_of_trouble;
