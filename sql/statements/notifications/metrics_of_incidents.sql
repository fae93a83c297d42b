-- The open incidents, but for effects of others: what they are about, and what they cost so far; the $most worst.
-- Grain: incident_id.  From: incidents, muted_incidents.
SELECT
    incident_id,
    kind,
    job_id,
    subject_type,
    subject,
    coalesce(host, '') AS host,
    CASE
        WHEN incident_id IN (SELECT incident_id FROM muted_incidents WHERE until_ns > $now_ns) THEN 'yes' ELSE 'no'
    END AS muted,
    peak_severity,
    lost_gpu_s,
    start_ns / 1e9 AS start_s,
    last_seen_ns / 1e9 AS last_seen_s
FROM incidents
WHERE state = 'open' AND effect_of IS NULL
ORDER BY lost_gpu_s DESC NULLS LAST, incident_id
LIMIT $most;
