-- The values that some numbers stand for, in the order of the numbers. All others are left alone: a minute with a million
-- addresses must not make every later one read them.
SELECT place.value
FROM stored./* place */ AS place
SEMI JOIN used_numbers USING (number)
ORDER BY place.number
