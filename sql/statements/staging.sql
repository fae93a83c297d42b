-- The staging area of a landing: a DuckDB of its own, in memory, where records are checked before they meet the warehouse.
-- It is never a DuckLake, so macros are at hand.

-- One row per record read; reason is NULL for those to be landed. Grain: file, source_position.
CREATE TABLE staged (
    window_start_ns BIGINT,           -- NULL while the file's other records have yet to say
    file INTEGER NOT NULL,            -- number of the file in the order of reading
    source_position BIGINT NOT NULL,  -- record number in the file, from 1
    reason VARCHAR,
    record VARCHAR,                   -- only where there is a reason
    flow_start_ns BIGINT,
    flow_end_ns BIGINT,
    src_addr VARCHAR,
    dst_addr VARCHAR,
    src_port INTEGER,
    dst_port INTEGER,
    protocol INTEGER,
    bytes BIGINT,
    packets BIGINT,
    switch_path VARCHAR[]
);

-- A whole number, of a number or of its text; NULL for what is none. `4791.0` is one, for some exporters write every
-- number so; `1.5` is none, for a cast would round it, and a time in seconds would pass for one in nanoseconds.
CREATE MACRO whole_number(value) AS CASE
    WHEN typeof(value) IN ('VARCHAR', 'DOUBLE', 'FLOAT') AND NOT regexp_full_match(value::VARCHAR, '[+-]?\d+(?:\.0*)?') THEN NULL
    ELSE try_cast(value AS BIGINT)
END;

-- A time that a flow can have: from 1970 up to 2200, so that sums of times and windows' ends stay within BIGINT.
-- Times before 2000 are seconds, milliseconds or microseconds taken for nanoseconds.
CREATE MACRO moment(value) AS CASE WHEN value >= 946684800000000000 AND value < 7258118400000000000 THEN value END;

-- Whether a text looks like an IPv4 or IPv6 address. Loosely: four groups of one to three digits, or hexadecimal groups
-- with at least two colons, with a zone or not. It keeps names and shifted columns out; it is no proof of a valid address.
CREATE MACRO is_address(value) AS
regexp_full_match(value, '\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?:%\w+)?');

-- The switches of a path: a list, JSON text of one, or names joined by `|`; NULL for what is none.
CREATE MACRO path(value) AS CASE
    WHEN typeof(value) = 'VARCHAR[]' OR starts_with(value::VARCHAR, '[') THEN try_cast(value AS VARCHAR[])
    ELSE string_split(value::VARCHAR, '|')
END;

-- The fields of a CSV line, quotes taken off; NULL when its quotes do not match. A record is a line: a quoted field that
-- runs over the end of its line is malformed, so one stray quote cannot swallow the records after it.
CREATE MACRO csv_fields(line) AS CASE
    WHEN NOT contains(line, '"') THEN string_split(line, ',')
    WHEN regexp_full_match(line || ',', '(?:(?:"(?:[^"]|"")*"|[^,"]*),)+') THEN list_transform(
        regexp_extract_all(line || ',', '("(?:[^"]|"")*"|[^,"]*),', 1),
        lambda field: CASE WHEN starts_with(field, '"') THEN replace(field[2:-2], '""', '"') ELSE field END
    )
END;
