-- Incidents of a range, or one of them by its id, each with the mute in force.
WITH chosen AS MATERIALIZED (
    SELECT *
    FROM incidents
    WHERE
        CASE
            WHEN $incident_id::VARCHAR IS NOT NULL THEN incident_id = $incident_id::VARCHAR
            ELSE last_seen_ns >= $from_ns AND start_ns < $to_ns
        END
        AND ($job_id::VARCHAR IS NULL OR list_contains(jobs, $job_id::VARCHAR))
    ORDER BY
        (state = 'open') DESC,
        coalesce(lost_gpu_s, 0) DESC,
        peak_severity DESC,
        start_ns,
        incident_id
    LIMIT $most
),

muted AS (  -- as the view muted_incidents has it, which would find all incidents a second time
    SELECT
        chosen.incident_id,
        max(mutes.until_ns) AS muted_until_ns,
        arg_max(mutes.reason, mutes.until_ns) AS mute_reason,
        arg_max(mutes.muted_by, mutes.until_ns) AS muted_by
    FROM chosen
    INNER JOIN mutes
        ON
            mutes.incident_id = chosen.incident_id
            OR (
                mutes.family = chosen.family
                AND mutes.place = chosen.place
                AND mutes.tenant = chosen.tenant
                AND mutes.window_start_ns BETWEEN chosen.first_window_start_ns AND chosen.last_window_start_ns
            )
    WHERE mutes.until_ns > $now_ns
    GROUP BY chosen.incident_id
)

SELECT
    chosen.*,
    muted.muted_until_ns,
    muted.mute_reason,
    muted.muted_by
FROM chosen
LEFT JOIN muted USING (incident_id)
ORDER BY
    (chosen.state = 'open') DESC,
    coalesce(chosen.lost_gpu_s, 0) DESC,
    chosen.peak_severity DESC,
    chosen.start_ns,
    chosen.incident_id;
