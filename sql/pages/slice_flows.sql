-- The flows of a NIC, or between it and its peer, that overlap an interval.
SELECT
    flow_start_ns,
    flow_end_ns,
    src_addr,
    dst_addr,
    src_port,
    dst_port,
    bytes,
    array_to_string(switch_path, ' → ') AS path
FROM flows
WHERE
    window_start_ns BETWEEN $first_window_ns AND $last_window_ns
    AND flow_start_ns <= $end_ns
    AND flow_end_ns >= $start_ns
    AND (
        (src_addr = $addr AND ($peer::VARCHAR IS NULL OR dst_addr = $peer::VARCHAR))
        OR (dst_addr = $addr AND ($peer::VARCHAR IS NULL OR src_addr = $peer::VARCHAR))
    )
ORDER BY flow_start_ns, src_addr, dst_addr, bytes
LIMIT $most;
