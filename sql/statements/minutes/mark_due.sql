-- Mark the windows that start at $starts_ns as due, and forget how often they were tried: there is something new.
UPDATE minutes SET
    due_reason = $reason,
    due_since_ns = coalesce(due_since_ns, $now_ns),
    tries = 0,
    tried_ns = NULL
WHERE window_start_ns IN (SELECT unnest($starts_ns::BIGINT[]));
