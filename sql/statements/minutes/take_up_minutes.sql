-- Record that the windows that start at $starts_ns are taken up as due.
UPDATE minutes SET tries = tries + 1, tried_ns = $now_ns
WHERE window_start_ns IN (SELECT unnest($starts_ns::BIGINT[]));
