-- From version 7 to 8: a row for each file that was read. What was landed before is not known by its files: it is read again
-- when one of them is looked at, and nothing is concluded from it until then.
CREATE TABLE flow_files (
    window_start_ns BIGINT NOT NULL,
    source_file VARCHAR NOT NULL,
    size_bytes BIGINT NOT NULL,
    modified_ns BIGINT NOT NULL,
    digest VARCHAR NOT NULL,
    records BIGINT NOT NULL,
    copy_of VARCHAR
);
