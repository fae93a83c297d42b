-- The records of a window that were not accepted; $files are the files in the order of reading.
SELECT
    window_start_ns,
    reason,
    $files[file + 1] AS source_file,
    source_position,
    record
FROM staged
WHERE window_start_ns = $window_start_ns AND reason IS NOT NULL
ORDER BY source_file, source_position
