-- Set a variable that says for each NIC of stored.nics, by number, whether its job is in the variable `jobs`.
SET VARIABLE nics_of_jobs = (
    SELECT list(list_contains(getvariable('jobs'), value.job_id) ORDER BY number) FROM stored.nics
)
