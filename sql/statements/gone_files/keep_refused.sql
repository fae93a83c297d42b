-- Add the window's refused records of files that are gone to the staged records.
INSERT INTO staged BY NAME
SELECT $window_start_ns AS window_start_ns, file, source_position, reason, record
FROM kept_refused
