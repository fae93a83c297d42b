-- One row per hour in which windows were expected: how many were, what became of them, and what was landed.
-- Grain: hour.  From: minutes, windows.  A done window may be due again: `llmprism due` lists those that are.
CREATE OR REPLACE VIEW coverage AS
SELECT
    date_trunc('hour', make_timestamp(minutes.window_start_ns // 1000)) AS hour,
    count(*) AS expected,
    count(*) FILTER (WHERE windows.status = 'done') AS done,
    count(*) FILTER (WHERE windows.status = 'stopped') AS stopped,
    count(*) FILTER (WHERE windows.status IN ('landed', 'running') AND minutes.begun_ns IS NOT NULL) AS unfinished,
    count(*) FILTER (WHERE minutes.begun_ns IS NULL) AS without_run,
    count(*) FILTER (WHERE minutes.due_reason IS NOT NULL) AS marked_due,
    count(*) FILTER (WHERE windows.status = 'done') / count(*) AS done_ratio,
    coalesce(sum(windows.rows_landed), 0)::BIGINT AS rows_landed,
    coalesce(sum(windows.rows_quarantined), 0)::BIGINT AS rows_quarantined
FROM minutes
LEFT JOIN windows ON minutes.window_start_ns = windows.window_start_ns
GROUP BY ALL;
