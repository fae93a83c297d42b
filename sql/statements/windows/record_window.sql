-- Update the row of the window that starts at $start_ns; parameters that are NULL change nothing. A window that is
-- resumed loses the reason for which it was stopped.
UPDATE windows SET
    status = coalesce($status, status),
    reason = CASE WHEN status = 'stopped' AND $status IS NOT NULL THEN $reason ELSE coalesce($reason, reason) END,
    stage_ns = CASE
        WHEN $elapsed_ns::BIGINT IS NULL THEN stage_ns
        ELSE json_merge_patch(stage_ns, json_object($stage, $elapsed_ns::BIGINT))
    END
WHERE window_start_ns = $start_ns;
