-- One row if any record of a reader has a usable start at or after $time_ns.
SELECT 1 FROM (/* records */) WHERE moment(whole_number(flow_start_ns)) >= $time_ns LIMIT 1
