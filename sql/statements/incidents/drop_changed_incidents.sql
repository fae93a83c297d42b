-- Delete the stored incidents that are not among the found ones, or are other rows there.
DELETE FROM stored.incidents
WHERE incident_id IN (
    SELECT incident_id
    FROM (FROM stored.incidents EXCEPT FROM found_incidents)
);
