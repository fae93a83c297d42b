-- The lengths of windows, each once, in the order of the first window that has it.
SELECT window_end_ns - window_start_ns AS length_ns
FROM windows
GROUP BY length_ns
ORDER BY min(window_start_ns)
