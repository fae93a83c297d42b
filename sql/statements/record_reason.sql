-- Write down what was odd in the window that starts at $start_ns; what says the same already is not written anew, which in
-- a DuckLake would cost others their commits.
UPDATE windows SET reason = $reason
WHERE window_start_ns = $start_ns AND reason IS DISTINCT FROM $reason;
