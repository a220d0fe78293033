-- A stream's entry, with the present name of its table, and the newest of its slices.
SELECT l.target, l.table_oid::text AS oid,
       (SELECT json_build_array(n.nspname, c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = l.table_oid) AS now,
       l.refreshed, l.id, l.rows, l.bytes, l.outcome::text AS outcome,
       json_build_object(
           'stream', l.stream, 'number', l.number, 'after', l.after, 'upto', l.upto, 'content', l.content,
           'previous', l.previous, 'kind', l.kind, 'spool', l.spool
       ) AS slice,
       (SELECT s.id FROM {schema}.slices s
        WHERE s.pipeline = l.pipeline AND s.stream = l.stream ORDER BY s.number DESC LIMIT 1) AS newest
FROM {schema}.ledger l
WHERE l.pipeline = {pipeline} AND l.stream = {stream}
