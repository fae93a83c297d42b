-- Record the reason of the window that starts at $start_ns, which is no longer stopped if it was. An equal reason is
-- not written again, because in a DuckLake that would make other writers' commits fail.
UPDATE windows SET
    status = CASE status WHEN 'stopped' THEN 'running' ELSE status END,
    reason = $reason
WHERE window_start_ns = $start_ns AND (status = 'stopped' OR reason IS DISTINCT FROM $reason);
