-- A stream begins to wait for the files of a load.
INSERT INTO {loads} AS l (pipeline, stream, load, waits, declared) VALUES ({named}, true, {declared})
ON CONFLICT (pipeline, stream, load) DO UPDATE SET
    waits = true, horizon = NULL, snapshot = NULL, low = NULL, declared = excluded.declared, dump = NULL
