-- From version 8 to 9: a row for each window that a file holds records of.
CREATE TABLE flow_file_windows (
    window_start_ns BIGINT NOT NULL,
    source_file VARCHAR NOT NULL,
    records BIGINT NOT NULL,
    digest VARCHAR NOT NULL,
    landed BOOLEAN NOT NULL
);
