-- Set a variable to say of each NIC of stored.nics, by its number, whether its job is among the variable `jobs`.
SET VARIABLE nics_of_jobs = (
    SELECT list(list_contains(getvariable('jobs'), value.job_id) ORDER BY number) FROM stored.nics
)
