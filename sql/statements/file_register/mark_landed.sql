-- The window that starts at $start_ns is landed with the records of $files, and with no others.
UPDATE flow_file_windows SET landed = NOT landed
WHERE
    window_start_ns = $start_ns
    AND landed <> (source_file IN (SELECT unnest($files::VARCHAR[])))
