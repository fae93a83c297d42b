-- The first usable start among the records of a reader, in the order of the file; NULL if there is none.
SELECT arg_min(moment(nanoseconds(flow_start_ns, $start_factor)), source_position) FROM (/* records */)
