-- How far the pipeline is, and what its latest finished window was made of.
-- Grain: one row; NULL where no window is finished.  From: windows.
WITH latest AS (
    SELECT arg_max(windows, window_start_ns) AS of_it
    FROM windows
    WHERE status = 'done'
)

SELECT
    of_it.window_start_ns,
    of_it.window_end_ns / 1e9 AS end_s,
    of_it.rows_landed AS landed,
    of_it.rows_quarantined AS quarantined,
    list_sum(json_extract(of_it.stage_ns, '$.*')::BIGINT[]) / 1e9 AS stages_s,
    (SELECT count(*) FROM windows WHERE status = 'stopped') AS stopped
FROM latest;
