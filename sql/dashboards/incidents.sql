-- Incidents of the time and the chosen jobs, the open ones first, then the most expensive; at most 100.
-- Grain: incident_id.  From: incidents.  Severity as ratio of time lost, costs in GPU-seconds.
SELECT
    state,
    kind,
    subject,
    host,
    array_to_string(jobs, ', ') AS jobs,
    started,
    last_seen,
    peak_severity,
    lost_gpu_s,
    explanation
FROM incidents
WHERE
    last_seen_ns >= $from_ns AND start_ns < $to_ns
    AND effect_of IS NULL
    AND list_has_any(jobs, [$job_id])
ORDER BY state = 'open' DESC, lost_gpu_s DESC NULLS LAST, incident_id
LIMIT 100;
