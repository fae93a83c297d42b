-- About how many addresses the window with most of them has, among the accepted records. Exact counts would cost as much as
-- all other checks.
SELECT coalesce(max(addrs), 0)
FROM (
    SELECT approx_count_distinct(src_addr) + approx_count_distinct(dst_addr) AS addrs
    FROM staged
    WHERE reason IS NULL
    GROUP BY window_start_ns
)
