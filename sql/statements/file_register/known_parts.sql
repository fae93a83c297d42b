-- The files that are known to hold records of windows of a span.
SELECT DISTINCT source_file FROM flow_file_windows WHERE window_start_ns >= $start_ns AND window_start_ns < $end_ns
