-- Files that are known to hold records of the window that starts at $start_ns, and are not among $files.
SELECT source_file
FROM flow_file_windows
WHERE window_start_ns = $start_ns AND source_file NOT IN (SELECT unnest($files::VARCHAR[]))
