-- Add the windows of the incoming files that are not known.
INSERT INTO flow_file_windows BY NAME
SELECT * FROM incoming_parts ANTI JOIN flow_file_windows USING (window_start_ns, source_file)
