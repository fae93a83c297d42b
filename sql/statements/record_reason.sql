-- Write down what is odd in the window that starts at $start_ns, which is no longer stopped if it was; what says the same
-- already is not written anew, which in a DuckLake would cost others their commits.
UPDATE windows SET
    status = CASE status WHEN 'stopped' THEN 'running' ELSE status END,
    reason = $reason
WHERE window_start_ns = $start_ns AND (status = 'stopped' OR reason IS DISTINCT FROM $reason);
