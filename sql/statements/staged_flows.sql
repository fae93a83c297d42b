-- The accepted records of a window, in an order that leaves nothing to chance.
SELECT
    window_start_ns,
    flow_start_ns,
    flow_end_ns,
    src_addr,
    dst_addr,
    src_port,
    dst_port,
    protocol,
    bytes,
    packets,
    switch_path
FROM staged
WHERE window_start_ns = $window_start_ns AND reason IS NULL
ORDER BY
    flow_start_ns, src_addr, dst_addr, src_port NULLS FIRST, dst_port NULLS FIRST, bytes, flow_end_ns,
    protocol NULLS FIRST, packets NULLS FIRST, switch_path NULLS FIRST
