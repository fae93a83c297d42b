-- Record that a run of the window that starts at $start_ns lands its flows: what is due until now is thereby done.
UPDATE minutes SET
    begun_ns = $now_ns,
    seen = $seen,
    due_reason = NULL,
    due_since_ns = NULL
WHERE window_start_ns = $start_ns;
