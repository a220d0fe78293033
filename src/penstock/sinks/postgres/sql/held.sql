SELECT l.target, l.table_oid::text,
       (SELECT json_build_array(n.nspname, c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = l.table_oid),
       l.refreshed, l.number, l.id, l.previous, l.kind, l.after, l.upto, l.content, l.rows, l.bytes, l.outcome::text,
       (SELECT s.id FROM {schema}.slices s
        WHERE s.pipeline = l.pipeline AND s.stream = l.stream ORDER BY s.number DESC LIMIT 1)
FROM {schema}.ledger l
WHERE l.pipeline = {pipeline} AND l.stream = {stream}
