-- The records of the Parquet file $file_name that start in an interval, and those with an unusable start.
-- The names of folders mean nothing: `bytes=999/` gives no column. Only the fields of a flow are taken from the file, under
-- their names in the contract, so no column of a file can stand for one of the reader's own.
-- The conditions are on the plain column, so that row groups without such a record are not read.
SELECT
    /* fields */,
    false AS malformed,
    file_row_number + 1 AS source_position,
    NULL::VARCHAR AS source_line,
    /* whole */ AS source_record
FROM read_parquet($file_name, hive_partitioning = false, filename = false) AS /* whole */
WHERE /* near */
