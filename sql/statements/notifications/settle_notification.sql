-- Record the outcome of a message.
UPDATE notifications SET outcome = $outcome, detail = $detail
WHERE
    window_start_ns = $window_start_ns
    AND incident_id = $incident_id
    AND change = $change
    AND told_ns = $told_ns;
