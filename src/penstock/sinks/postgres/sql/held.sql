SELECT l.target, l.number, l.id, l.previous, l.kind, l.after, l.upto, l.content, l.rows, l.bytes, l.outcome::text,
       (SELECT s.id FROM {schema}.slices s
        WHERE s.pipeline = l.pipeline AND s.stream = l.stream ORDER BY s.number DESC LIMIT 1),
       to_regclass(l.target) IS NOT NULL
FROM {schema}.ledger l
WHERE l.pipeline = {pipeline} AND l.stream = {stream}
