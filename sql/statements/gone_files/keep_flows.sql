-- Add the window's flows of before to the staged records, but for those that a file holds; say how many these are.
INSERT INTO staged BY NAME
SELECT
    $window_start_ns AS window_start_ns,
    $file AS file,
    row_number() OVER () AS source_position,
    kept.*
FROM (
    SELECT
        flow_start_ns, flow_end_ns, src_addr, dst_addr, src_port, dst_port, protocol, bytes, packets, switch_path
    FROM kept_flows
    EXCEPT
    SELECT
        flow_start_ns, flow_end_ns, src_addr, dst_addr, src_port, dst_port, protocol, bytes, packets, switch_path
    FROM staged
    WHERE window_start_ns = $window_start_ns AND reason IS NULL
) AS kept
