-- One row per record that was not accepted, as it came, with why and where it was.
-- Grain: window_start_ns, source_file, source_position.  From: the files of flow records.
CREATE TABLE IF NOT EXISTS flows_quarantine (
    window_start_ns BIGINT NOT NULL,  -- the window the row belongs to
    reason VARCHAR NOT NULL,          -- why, from a closed list (sources/flows.py)
    source_file VARCHAR NOT NULL,     -- the file it came in
    source_position BIGINT NOT NULL,  -- its record number in that file, from 1
    record VARCHAR NOT NULL           -- the record as it came, as JSON text
);
