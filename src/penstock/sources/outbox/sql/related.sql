-- Each table of a schema: columns, primary key, unique keys, and foreign keys within the schema, as one JSON document.
SELECT jsonb_build_object(
    'name', c.relname,
    'rows', CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END,
    'columns', (SELECT jsonb_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'unique', (SELECT coalesce(jsonb_agg(u.names ORDER BY u.names), '[]') FROM (
                   SELECT (SELECT jsonb_agg(a.attname ORDER BY k.n) FROM unnest(i.indkey) WITH ORDINALITY k (attnum, n)
                           JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum) AS names
                   FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
                   AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = i.indnatts) u),
    'key', (SELECT coalesce(jsonb_agg(a.attname ORDER BY k.n), '[]') FROM pg_constraint p
            CROSS JOIN LATERAL unnest(p.conkey) WITH ORDINALITY k (attnum, n)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
            WHERE p.conrelid = c.oid AND p.contype = 'p'),
    'references', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'table', r.relname,
                       'columns', (SELECT jsonb_agg(a.attname ORDER BY k.n)
                                   FROM unnest(f.conkey) WITH ORDINALITY k (attnum, n)
                                   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum),
                       'to', (SELECT jsonb_agg(a.attname ORDER BY k.n)
                              FROM unnest(f.confkey) WITH ORDINALITY k (attnum, n)
                              JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = k.attnum)) ORDER BY f.conname), '[]')
                   FROM pg_constraint f JOIN pg_class r ON r.oid = f.confrelid AND r.relnamespace = c.relnamespace
                   WHERE f.conrelid = c.oid AND f.contype = 'f' AND f.conparentid = 0))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND strpos(c.relname, '.') = 0
ORDER BY c.relname
