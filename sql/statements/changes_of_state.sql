-- Incidents whose state is not what was last told of them, with the change to tell.
-- What was told belongs to the nearest incident of the same trouble: its first window may have come later, by a backfill,
-- and its id with it. What a receiver refused was not told. Only what opened can close.
WITH matched AS (
    SELECT
        incidents.incident_id,
        notifications.change,
        notifications.told_ns
    FROM notifications
    INNER JOIN incidents
        ON
            notifications.family = incidents.family
            AND notifications.place = incidents.place
            AND notifications.tenant = incidents.tenant
            AND notifications.seen_window_start_ns
            BETWEEN incidents.first_window_start_ns - $slack_ns AND incidents.last_window_start_ns + $slack_ns
    WHERE notifications.outcome <> 'refused'
    QUALIFY row_number() OVER (
        PARTITION BY notifications.told_ns
        ORDER BY
            greatest(
                incidents.first_window_start_ns - notifications.seen_window_start_ns,
                notifications.seen_window_start_ns - incidents.last_window_start_ns,
                0
            ),
            incidents.first_window_start_ns
    ) = 1
),

told AS (
    SELECT incident_id, arg_max(change, told_ns) AS last_change
    FROM matched
    GROUP BY incident_id
)

SELECT
    incidents.*,
    CASE incidents.state WHEN 'open' THEN 'opened' ELSE 'closed' END AS change
FROM incidents
LEFT JOIN told USING (incident_id)
WHERE
    coalesce(told.last_change, 'closed') <> CASE incidents.state WHEN 'open' THEN 'opened' ELSE 'closed' END
    AND (
        incidents.state = 'closed'
        OR (
            incidents.effect_of IS NULL
            AND incidents.peak_severity >= $least_severity
            AND (len($kinds::VARCHAR[]) = 0 OR list_has_any(incidents.kinds, $kinds::VARCHAR[]))
        )
    )
ORDER BY incidents.start_ns, incidents.incident_id;
