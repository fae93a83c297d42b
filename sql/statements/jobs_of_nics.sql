-- The job of each row that identifies its job by the NIC's number.
SELECT nic.value.job_id AS job_id
FROM (/* rows */) AS told
INNER JOIN stored.nics AS nic ON told.nic = nic.number
