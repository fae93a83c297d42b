-- One row per window: records read, accepted and refused, how long its stages took, whether the records add up, and
-- whether it is doubtful: many of its records were refused or came twice (expectations of the table `windows`).
-- Grain: window_start_ns.  From: windows, validation_results.  Durations in s.
CREATE OR REPLACE VIEW window_bookkeeping AS
WITH broken_expectations AS (
    SELECT window_start_ns, count(*) AS broken, bool_or(starts_with(expectation, 'windows.')) AS of_windows
    FROM validation_results
    WHERE NOT success
    GROUP BY window_start_ns
)

SELECT
    make_timestamp(windows.window_start_ns // 1000) AS window_start,
    make_timestamp(windows.window_end_ns // 1000) AS window_end,
    windows.status,
    windows.reason,
    windows.rows_read,
    windows.rows_landed,
    windows.rows_quarantined,
    windows.rows_duplicate,
    windows.rows_read = windows.rows_landed + windows.rows_quarantined AS rows_add_up,
    coalesce(broken_expectations.broken, 0) AS expectations_broken,
    coalesce(broken_expectations.of_windows, false) AS doubtful,
    coalesce(list_sum(json_extract(windows.stage_ns, '$.*')::BIGINT[]), 0) / 1e9 AS stages_s,
    windows.stage_ns,
    windows.software_version,
    windows.expired,
    windows.window_start_ns
FROM windows
LEFT JOIN broken_expectations ON windows.window_start_ns = broken_expectations.window_start_ns;
