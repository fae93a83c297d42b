-- The diagnoses of some jobs in a range of windows.
SELECT * EXCLUDE (evidence_sql)
FROM diagnoses
WHERE
    window_start_ns BETWEEN $first_ns AND $last_ns
    AND (len($jobs::VARCHAR[]) = 0 OR job_id IN (SELECT unnest($jobs::VARCHAR[])))
ORDER BY window_start_ns, job_id, rank NULLS LAST, severity DESC, kind, subject
LIMIT $most;
