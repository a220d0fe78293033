-- A request replaces the one before it. Without a time, it keeps that of the request before.
INSERT INTO {loads} AS l (pipeline, stream, load, since, wanted) VALUES ({named}, {since}, {wanted})
ON CONFLICT (pipeline, stream, load) DO UPDATE SET
    since = coalesce(excluded.since, l.since),
    wanted = excluded.wanted,
    waits = false, horizon = NULL, snapshot = NULL, low = NULL, declared = NULL, dump = NULL
