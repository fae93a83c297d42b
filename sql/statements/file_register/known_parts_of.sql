-- What is known of the records of the window that starts at $start_ns in $files.
SELECT source_file, records, landed
FROM flow_file_windows
WHERE window_start_ns = $start_ns AND source_file IN (SELECT unnest($files::VARCHAR[]))
