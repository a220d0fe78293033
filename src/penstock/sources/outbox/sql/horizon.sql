-- From when on a dump shows all that a waiting stream reads: after the request was committed.
UPDATE {loads} l SET
    horizon = clock_timestamp(),
    snapshot = pg_current_snapshot()::text,
    low = coalesce((SELECT c.low FROM {consumers} c WHERE c.pipeline = l.pipeline AND c.stream = l.stream),
                   (SELECT f.low FROM {floors} f WHERE f.stream = l.stream), 0)
WHERE pipeline = {pipeline} AND waits AND horizon IS NULL
