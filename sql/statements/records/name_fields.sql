-- Turn the refused records of a CSV file from lists of fields into JSON objects with the header's names.
UPDATE staged SET record = to_json(map($header::VARCHAR[], record::JSON::VARCHAR[]))
WHERE file = $file AND reason <> 'malformed_record'
