-- The windows that wait to be run, or are run: never begun, marked as due, or not finished.
-- A window that was landed only because another looks back at it is not in minutes, and waits for nothing.
SELECT minutes.window_start_ns
FROM minutes
LEFT JOIN windows USING (window_start_ns)
WHERE minutes.begun_ns IS NULL OR minutes.due_reason IS NOT NULL OR windows.status IN ('landed', 'running')
UNION
SELECT window_start_ns FROM windows WHERE status = 'running'
