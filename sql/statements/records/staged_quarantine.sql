-- The records of a window that were not accepted; $files are the files in the order of reading. What was put aside stays
-- in its file: a copy of each record would take the memory and the room that putting it aside is to save. Rows are sorted
-- before they get the names of their files, for the same reason.
SELECT
    window_start_ns,
    reason,
    $files[file + 1] AS source_file,
    source_position,
    CASE reason WHEN 'unlisted_flood' THEN '"put aside, see the file"' ELSE record END AS record
FROM (
    SELECT window_start_ns, reason, file, source_position, record
    FROM staged
    WHERE window_start_ns = $window_start_ns AND reason IS NOT NULL
    ORDER BY list_position(list_sort($files), $files[file + 1]), source_position
)
