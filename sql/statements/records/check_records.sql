-- Check the records of a reader, place each in its window, and stage the records placed in [$low_ns, $high_ns).
-- A record's reason is the first that applies. $span_start_ns and $span_end_ns are the interval that the file's name
-- gives, NULL if it gives none; a record without a usable start then has no window yet (NULL), and is staged too. A record
-- belongs to the window in which it starts, whatever its file's name says, unless it starts more than $farthest_ns away.
INSERT INTO staged BY NAME
WITH records AS NOT MATERIALIZED (/* records */),

typed AS NOT MATERIALIZED (
    SELECT
        source_position,
        source_line,
        source_record,
        malformed,
        nanoseconds(flow_start_ns, $start_factor) AS start_number,
        nanoseconds(flow_end_ns, $end_factor) AS end_number,
        one_spelling(src_addr::VARCHAR) AS source,
        one_spelling(dst_addr::VARCHAR) AS destination,
        try_cast(whole_number(src_port) AS INTEGER) AS source_port,
        try_cast(whole_number(dst_port) AS INTEGER) AS destination_port,
        try_cast(whole_number(protocol) AS INTEGER) AS protocol_number,
        whole_number(bytes) AS bytes_number,
        whole_number(packets) AS packets_number,
        path(switch_path) AS switches,
        flow_start_ns IS NULL OR flow_end_ns IS NULL OR src_addr IS NULL OR dst_addr IS NULL OR bytes IS NULL AS lacks_field,
        (start_number IS NULL AND flow_start_ns IS NOT NULL)
        OR (end_number IS NULL AND flow_end_ns IS NOT NULL)
        OR (source_port IS NULL AND src_port IS NOT NULL)
        OR (destination_port IS NULL AND dst_port IS NOT NULL)
        OR (protocol_number IS NULL AND protocol IS NOT NULL)
        OR (bytes_number IS NULL AND bytes IS NOT NULL)
        OR (packets_number IS NULL AND packets IS NOT NULL) AS has_odd_number,
        switches IS NULL AND switch_path IS NOT NULL AS has_odd_path
    FROM records
),

judged AS NOT MATERIALIZED (
    SELECT
        *,
        moment(start_number) AS start_ns,
        CASE
            WHEN malformed THEN 'malformed_record'
            WHEN lacks_field THEN 'missing_field'
            WHEN has_odd_number THEN 'not_a_number'
            WHEN has_odd_path THEN 'not_a_path'
            WHEN moment(start_number) IS NULL OR moment(end_number) IS NULL THEN 'not_a_time'
            WHEN NOT is_address(source) OR NOT is_address(destination) THEN 'not_an_address'
            WHEN end_number < start_number THEN 'end_before_start'
            WHEN bytes_number <= 0 THEN 'no_bytes'
            WHEN source = destination THEN 'source_is_destination'
        END AS fault,
        coalesce(
            start_ns < $span_start_ns::BIGINT - $farthest_ns OR start_ns >= $span_end_ns::BIGINT + $farthest_ns, false
        ) AS strays
    FROM typed
),

placed AS NOT MATERIALIZED (
    SELECT
        *,
        coalesce(fault, CASE WHEN strays THEN 'outside_window' END) AS reason,
        CASE WHEN strays OR start_ns IS NULL THEN $span_start_ns::BIGINT ELSE start_ns - start_ns % $length_ns END
            AS window_start_ns
    FROM judged
)

SELECT
    window_start_ns,
    $file::INTEGER AS file,
    source_position,
    reason,
    CASE
        WHEN reason = 'malformed_record' THEN to_json(source_line)
        WHEN reason IS NOT NULL THEN to_json(source_record)
    END AS record,
    start_number AS flow_start_ns,
    end_number AS flow_end_ns,
    source AS src_addr,
    destination AS dst_addr,
    source_port AS src_port,
    destination_port AS dst_port,
    protocol_number AS protocol,
    bytes_number AS bytes,
    packets_number AS packets,
    switches AS switch_path
FROM placed
WHERE window_start_ns IS NULL OR (window_start_ns >= $low_ns AND window_start_ns < $high_ns)
