-- Add the incoming files that are not known.
INSERT INTO flow_files BY NAME
SELECT * FROM incoming_files ANTI JOIN flow_files USING (source_file)
