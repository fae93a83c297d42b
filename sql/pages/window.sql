-- One window's bookkeeping.
SELECT *
FROM window_bookkeeping
WHERE window_start_ns = $window_start_ns;
