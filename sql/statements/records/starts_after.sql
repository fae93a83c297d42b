-- One row if any record of a reader has a usable start at or after $time_ns.
SELECT 1 FROM (/* records */) WHERE moment(nanoseconds(flow_start_ns, $start_factor)) >= $time_ns LIMIT 1
