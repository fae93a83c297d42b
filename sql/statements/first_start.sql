-- The first usable start among the records that a reader gives, in the order of the file; NULL when there is none.
SELECT arg_min(moment(whole_number(flow_start_ns)), source_position) FROM (/* records */)
