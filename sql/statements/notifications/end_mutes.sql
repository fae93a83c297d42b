-- End the mutes of an incident that are in force; what was muted until now stays on record.
UPDATE mutes SET until_ns = $now_ns
WHERE
    until_ns > $now_ns
    AND (incident_id, muted_ns) IN (
        SELECT
            own.incident_id,
            own.muted_ns
        FROM mutes AS own
        INNER JOIN muted_incidents ON own.muted_ns = muted_incidents.muted_ns AND own.until_ns = muted_incidents.until_ns
        WHERE muted_incidents.incident_id = $incident_id
    );
