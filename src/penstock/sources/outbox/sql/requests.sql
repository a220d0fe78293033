-- What was asked for about the loads of a pipeline.
SELECT stream, load, since::text, wanted, waits, horizon, snapshot, low, declared, dump
FROM {loads} WHERE pipeline = {pipeline}
