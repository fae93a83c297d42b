-- The paths that flows took in a window.
SELECT DISTINCT
    src_addr,
    dst_addr,
    switch_path
FROM flows
WHERE window_start_ns = $window_start_ns AND len(switch_path) > 0
ORDER BY src_addr, dst_addr, switch_path;
