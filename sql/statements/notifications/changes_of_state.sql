-- Incidents whose state differs from the last message about them, with the change to notify.
-- A message belongs to the nearest incident of the same family, place and tenant: a backfill may have added an earlier
-- first window, and thereby changed the incident's id. A refused message does not count. An incident can close only
-- after an opening message; if the receiver refused that one until the incident was over, a single message reports
-- both. After a closing message an incident stays closed, even if it seems open while later windows are run again: if
-- the fault comes back later, that is another incident. Of a muted incident nothing is told; when the mute is over, what
-- has not been told by then is.
WITH matched AS (
    SELECT
        incidents.incident_id,
        notifications.change,
        notifications.outcome,
        notifications.told_ns
    FROM notifications
    INNER JOIN incidents
        ON
            notifications.family = incidents.family
            AND notifications.place = incidents.place
            AND notifications.tenant = incidents.tenant
            AND notifications.seen_window_start_ns
            BETWEEN incidents.first_window_start_ns - $slack_ns AND incidents.last_window_start_ns + $slack_ns
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
    SELECT
        incident_id,
        arg_max(change, told_ns) FILTER (WHERE outcome <> 'refused') AS last_change,
        bool_or(outcome = 'refused') AS was_refused
    FROM matched
    GROUP BY incident_id
)

SELECT
    incidents.*,
    CASE incidents.state WHEN 'open' THEN 'opened' ELSE 'closed' END AS change
FROM incidents
LEFT JOIN told USING (incident_id)
WHERE
    CASE
        WHEN told.last_change IS NULL THEN incidents.state = 'open' OR coalesce(told.was_refused, FALSE)
        ELSE told.last_change = 'opened' AND incidents.state = 'closed'
    END
    AND (
        incidents.state = 'closed'
        OR (
            incidents.effect_of IS NULL
            AND incidents.peak_severity >= $least_severity
            AND coalesce(incidents.confidence, 1) >= $even_chance
            -- Where the topology lacks NICs next to the subject, one of these may be at fault instead
            AND NOT (
                coalesce(incidents.confidence, 1) <= $even_chance
                AND EXISTS (
                    FROM jobs
                    WHERE
                        jobs.window_start_ns = incidents.worst_window_start_ns
                        AND jobs.job_id = incidents.job_id
                        AND jobs.unlisted IS NOT NULL
                )
            )
            -- One slow step is over by the time it is told, and of a slow group nobody knows what to repair: these matter
            -- when they have become dear, and a slow step if it comes again
            AND NOT (
                (coalesce(incidents.single_steps = 1, FALSE) OR incidents.kinds = ['cross_group'])
                AND coalesce(incidents.lost_gpu_s, 0) < $one_step_gpu_s
            )
            AND (len($kinds::VARCHAR[]) = 0 OR list_has_any(incidents.kinds, $kinds::VARCHAR[]))
        )
    )
    AND NOT EXISTS (  -- as the view muted_incidents has it, which would find all incidents a second time
        SELECT 1 FROM mutes
        WHERE
            mutes.until_ns > $now_ns
            AND (
                mutes.incident_id = incidents.incident_id
                OR (
                    mutes.family = incidents.family
                    AND mutes.place = incidents.place
                    AND mutes.tenant = incidents.tenant
                    AND mutes.window_start_ns BETWEEN incidents.first_window_start_ns AND incidents.last_window_start_ns
                )
            )
    )
ORDER BY incidents.start_ns, incidents.incident_id;
