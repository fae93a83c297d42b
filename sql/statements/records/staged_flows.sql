-- The accepted records of a window, in the order in which they were read.
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
