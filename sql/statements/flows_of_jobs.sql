-- A condition on stored.flows: from or to an address that one of $jobs has in the span's last window that has any of them.
-- The jobs asked for are those of the span's last window, so earlier windows' results have no say in it.
(
    src_addr IN (
        SELECT number FROM job_members INNER JOIN stored.names ON addr = value
        WHERE job_id IN (SELECT unnest($jobs::VARCHAR[])) AND window_start_ns = (
            SELECT max(window_start_ns) FROM job_members
            WHERE job_id IN (SELECT unnest($jobs::VARCHAR[]))
                AND window_start_ns >= $start_ns AND window_start_ns < $end_ns
        )
    )
    OR dst_addr IN (
        SELECT number FROM job_members INNER JOIN stored.names ON addr = value
        WHERE job_id IN (SELECT unnest($jobs::VARCHAR[])) AND window_start_ns = (
            SELECT max(window_start_ns) FROM job_members
            WHERE job_id IN (SELECT unnest($jobs::VARCHAR[]))
                AND window_start_ns >= $start_ns AND window_start_ns < $end_ns
        )
    )
)
