-- One row per mute and the incident that it is of. Windows that are run again may give an incident another id (its first
-- window is in it), so a mute also belongs to the incident of its place at the time it was muted.
-- Grain: incident_id, muted_ns.  From: mutes, incidents.
CREATE OR REPLACE VIEW muted_incidents AS
SELECT
    incidents.incident_id,
    make_timestamp(mutes.muted_ns // 1000) AS muted,
    make_timestamp(mutes.until_ns // 1000) AS until,
    mutes.reason,
    mutes.muted_by,
    mutes.muted_ns,
    mutes.until_ns
FROM mutes
INNER JOIN incidents
    ON
        mutes.incident_id = incidents.incident_id
        OR (
            mutes.family = incidents.family
            AND mutes.place = incidents.place
            AND mutes.tenant = incidents.tenant
            AND mutes.window_start_ns BETWEEN incidents.first_window_start_ns AND incidents.last_window_start_ns
        );
