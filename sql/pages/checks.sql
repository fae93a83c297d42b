-- The expectations of a window, those that did not hold first.
SELECT
    expectation,
    "column",
    severity,
    success,
    observed,
    unexpected_count
FROM validation_results
WHERE window_start_ns = $window_start_ns
ORDER BY success, severity, expectation, "column"
LIMIT $most;
