-- A call with a number below the registered one may lower the mark, and never raises it.
INSERT INTO {consumers} AS c (pipeline, stream, number, low) VALUES ({pipeline}, {stream}, {number}, {low})
ON CONFLICT (pipeline, stream) DO UPDATE SET
    number = greatest(c.number, excluded.number),
    low = CASE WHEN excluded.number >= c.number THEN excluded.low ELSE least(c.low, excluded.low) END,
    updated_at = clock_timestamp()
WHERE (c.number, c.low) IS DISTINCT FROM
    (greatest(c.number, excluded.number),
     CASE WHEN excluded.number >= c.number THEN excluded.low ELSE least(c.low, excluded.low) END)
RETURNING xmax = 0
