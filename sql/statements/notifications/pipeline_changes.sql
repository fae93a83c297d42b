-- What was last told of each state of the pipeline itself; a message that was refused does not count.
SELECT place, arg_max(change, told_ns) AS change
FROM notifications
WHERE family = $family AND outcome <> 'refused'
GROUP BY place;
