-- The window that starts at $start_ns holds no records of $files any more.
DELETE FROM flow_file_windows
WHERE window_start_ns = $start_ns AND source_file IN (SELECT unnest($files::VARCHAR[]))
