-- $records of the window that starts at $start_ns are kept of a file that is gone.
UPDATE flow_file_windows SET records = $records
WHERE window_start_ns = $start_ns AND source_file = $file
