-- Staging area of a landing: an in-memory DuckDB of its own, where records are checked before they enter the warehouse.
-- It is never a DuckLake, so macros are allowed.

-- One row per record read; reason is NULL for accepted records. Grain: file, source_position.
CREATE TABLE staged (
    window_start_ns BIGINT,           -- NULL until the file's other records are read
    file INTEGER NOT NULL,            -- number of the file in the order of reading
    source_position BIGINT NOT NULL,  -- record number in the file, from 1
    reason VARCHAR,
    record VARCHAR,                   -- only for refused records
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

-- A whole number, given as number or text; NULL for anything else. `4791.0` is accepted, because some exporters write
-- every number so. `1.5` is not: a cast would round it, and a time in seconds would be accepted as one in nanoseconds.
CREATE MACRO whole_number(value) AS CASE
    WHEN typeof(value) IN ('VARCHAR', 'DOUBLE', 'FLOAT') AND NOT regexp_full_match(value::VARCHAR, '[+-]?\d+(?:\.0*)?') THEN NULL
    ELSE try_cast(value AS BIGINT)
END;

-- A time in a column whose unit is `factor` nanoseconds; NULL for anything else. Where the unit is known not to be
-- nanoseconds, ISO 8601 text is a time, too; without a zone it is UTC. Fractions are exact: no DOUBLE comes in between.
CREATE MACRO nanoseconds(value, factor) AS CASE
    WHEN factor = 1 THEN whole_number(value)
    ELSE coalesce(
        try_cast(try_cast(value::VARCHAR AS DECIMAL(28, 9)) * factor AS BIGINT),
        epoch_ns(try_cast(value::VARCHAR AS TIMESTAMP_NS))
    )
END;

-- An IPv4 address that is written as an IPv6 one (`::ffff:10.0.0.1`) is the IPv4 address.
CREATE MACRO one_spelling(addr) AS CASE
    WHEN contains(addr, ':') THEN regexp_replace(addr, '^(?:::|(?:0{1,4}:){5})(?i:ffff):(\d{1,3}(?:\.\d{1,3}){3})$', '\1')
    ELSE addr
END;

-- A possible time of a flow: from 1970 to 2200, so that sums of times and ends of windows stay within BIGINT.
-- A time before 2000 is one in seconds, milliseconds or microseconds that was taken for nanoseconds.
CREATE MACRO moment(value) AS CASE WHEN value >= 946684800000000000 AND value < 7258118400000000000 THEN value END;

-- Whether a text is an IPv4 or IPv6 address; the expression is `sources.addresses.ADDRESS`.
CREATE MACRO is_address(value) AS regexp_full_match(value, '/* address */');

-- The switches of a path: a list, JSON text of one, or names joined by `|`; NULL for anything else. Names that are joined by
-- another sign would be taken for one switch. Escapes are JSON's: a cast of text to a list only drops their backslash.
CREATE MACRO path(value) AS CASE
    WHEN typeof(value) <> 'VARCHAR[]' AND regexp_matches(value::VARCHAR, '^\[.*\\', 's')
        THEN try_cast(try_cast(value AS JSON) AS VARCHAR[])
    WHEN typeof(value) = 'VARCHAR[]' OR starts_with(value::VARCHAR, '[') THEN try_cast(value AS VARCHAR[])
    WHEN NOT regexp_matches(value::VARCHAR, '[;,>]') THEN string_split(value::VARCHAR, '|')
END;

-- The fields of a CSV line without their quotes; NULL if its quotes do not match. A record is one line: a quoted field
-- that continues on the next line is malformed, so that one stray quote cannot swallow the records after it.
CREATE MACRO csv_fields(line) AS CASE
    WHEN NOT contains(line, '"') THEN string_split(line, ',')
    WHEN regexp_full_match(line || ',', '(?:(?:"(?:[^"]|"")*"|[^,"]*),)+') THEN list_transform(
        regexp_extract_all(line || ',', '("(?:[^"]|"")*"|[^,"]*),', 1),
        lambda field: CASE WHEN starts_with(field, '"') THEN replace(field[2:-2], '""', '"') ELSE field END
    )
END;
