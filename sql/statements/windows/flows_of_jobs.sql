-- Condition on stored.flows: from or to a NIC that is a member of one of $jobs in the last window of the span with
-- members of any of them. The requested jobs are those of the span's last window, so earlier windows do not matter.
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
