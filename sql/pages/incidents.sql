-- Incidents of a range, or one of them by its id, each with the mute in force.
WITH muted AS (
    SELECT
        incident_id,
        max(until_ns) AS muted_until_ns,
        arg_max(reason, until_ns) AS mute_reason,
        arg_max(muted_by, until_ns) AS muted_by
    FROM muted_incidents
    WHERE until_ns > $now_ns
    GROUP BY incident_id
)

SELECT
    incidents.*,
    muted.muted_until_ns,
    muted.mute_reason,
    muted.muted_by
FROM incidents
LEFT JOIN muted USING (incident_id)
WHERE
    CASE
        WHEN $incident_id::VARCHAR IS NOT NULL THEN incidents.incident_id = $incident_id::VARCHAR
        ELSE incidents.last_seen_ns >= $from_ns AND incidents.start_ns < $to_ns
    END
    AND ($job_id::VARCHAR IS NULL OR list_contains(incidents.jobs, $job_id::VARCHAR))
ORDER BY
    (incidents.state = 'open') DESC,
    coalesce(incidents.lost_gpu_s, 0) DESC,
    incidents.peak_severity DESC,
    incidents.start_ns,
    incidents.incident_id
LIMIT $most;
