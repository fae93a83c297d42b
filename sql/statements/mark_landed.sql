-- The window that starts at $start_ns is landed with the records of $files.
UPDATE flow_file_windows SET landed = true
WHERE NOT landed AND window_start_ns = $start_ns AND source_file IN (SELECT unnest($files::VARCHAR[]))
