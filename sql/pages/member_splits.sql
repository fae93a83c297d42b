-- How each NIC's steps are divided, in some windows of a job, with the end of the job's own step.
SELECT
    parts.window_start_ns,
    parts.step_index,
    parts.addr,
    members.host,
    members.pp_stage,
    own.end_ns,
    parts.step_ns,
    parts.compute_ns,
    parts.communication_ns,
    parts.bubble_ns,
    parts.waiting_ns,
    parts.waiting_for,
    parts.unexplained_ns
FROM step_breakdown AS parts
INNER JOIN steps AS own
    ON
        parts.window_start_ns = own.window_start_ns
        AND parts.job_id = own.job_id
        AND parts.step_index = own.step_index
        AND own.addr IS NULL
INNER JOIN job_members AS members
    ON
        parts.window_start_ns = members.window_start_ns
        AND parts.job_id = members.job_id
        AND parts.addr = members.addr
WHERE
    parts.window_start_ns IN (SELECT unnest($windows::BIGINT[]))
    AND parts.window_start_ns BETWEEN $first_ns AND $last_ns
    AND own.window_start_ns BETWEEN $first_ns AND $last_ns
    AND members.window_start_ns BETWEEN $first_ns AND $last_ns
    AND parts.job_id = $job_id
ORDER BY own.end_ns, parts.addr
LIMIT $most;
