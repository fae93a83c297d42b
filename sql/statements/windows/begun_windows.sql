-- The windows whose last run began at $since_ns or later, by the clock.
SELECT window_start_ns FROM minutes WHERE begun_ns >= $since_ns
