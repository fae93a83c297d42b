-- Condition on the column of starts, in nanoseconds: a start in [$from_ns, $to_ns), or an unusable one.
(/* start */ >= $from_ns AND /* start */ < $to_ns)
OR /* start */ IS NULL
OR /* start */ < 0
OR /* start */ >= 7258118400000000000
