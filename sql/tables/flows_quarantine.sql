-- One row per refused record, as it was read, with the reason and its place in its file.
-- Grain: window_start_ns, source_file, source_position.  From: the files of flow records.
CREATE TABLE IF NOT EXISTS flows_quarantine (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    reason VARCHAR NOT NULL,          -- why it was refused, one of the reasons in sources/flows.py
    source_file VARCHAR NOT NULL,     -- the file that the record is from
    source_position BIGINT NOT NULL,  -- the record's number in that file, from 1
    record VARCHAR NOT NULL           -- the record as it was read, as JSON text
);
