-- The non-blank lines of the text file $file_name, numbered from 1; its name says whether it is compressed.
-- The delimiter is a character that no text contains, so that each line is one field.
SELECT
    row_number() OVER () AS line_number,
    line
FROM read_csv(
    $file_name,
    columns = {'line': 'VARCHAR'},
    auto_detect = false,
    hive_partitioning = false,
    filename = false,
    header = false,
    delim = e'\x1f\x1e',
    quote = '',
    escape = '',
    comment = '',
    nullstr = e'\x1e\x1f',
    strict_mode = false,
    max_line_size = 1048576
)
