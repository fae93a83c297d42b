-- The job of each of some rows that know it by their NIC.
SELECT nic.value.job_id AS job_id
FROM (/* rows */) AS told
INNER JOIN stored.nics AS nic ON told.nic = nic.number
