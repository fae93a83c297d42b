-- For each open incident that one of several devices may have caused: these, and the odds, as the worst window knew them.
SELECT
    incidents.incident_id,
    incidents.kind,
    incidents.subject,
    diagnoses.window_start_ns,
    diagnoses.candidates,
    diagnoses.odds
FROM incidents
INNER JOIN diagnoses
    ON
        incidents.worst_window_start_ns = diagnoses.window_start_ns
        AND incidents.job_id = diagnoses.job_id
        AND incidents.kind = diagnoses.kind
        AND incidents.subject_type = diagnoses.subject_type
        AND incidents.subject = diagnoses.subject
WHERE incidents.state = 'open' AND len(diagnoses.candidates) > 1
ORDER BY incidents.lost_gpu_s DESC NULLS LAST, incidents.incident_id;
