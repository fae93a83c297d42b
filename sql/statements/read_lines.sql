-- The lines of the text file $file_name that are not blank, numbered from 1; compressed or not, by its name.
-- The delimiter is one that no text has, so that each line is one field.
SELECT
    row_number() OVER () AS line_number,
    line
FROM read_csv(
    $file_name,
    columns = {'line': 'VARCHAR'},
    auto_detect = false,
    header = false,
    delim = e'\x1f\x1e',
    quote = '',
    escape = '',
    comment = '',
    nullstr = e'\x1e\x1f',
    strict_mode = false,
    max_line_size = 1048576
)
