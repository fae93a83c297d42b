-- Record that a run of the window that starts at $start_ns was finished.
UPDATE minutes SET
    runs = runs + 1,
    last_run_ns = $now_ns,
    tries = 0,
    tried_ns = NULL
WHERE window_start_ns = $start_ns;
