-- Delete the stored incidents that begin in the window `since_ns` or later and are not among the found ones, or are
-- other rows there.
DELETE FROM stored.incidents
WHERE incident_id IN (
    SELECT incident_id
    FROM (FROM stored.incidents WHERE first_window_start_ns >= $since_ns EXCEPT FROM found_incidents)
);
