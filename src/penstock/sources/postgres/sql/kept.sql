-- How a column comes by its values: what the server is, the column's default, identity and sequence, and the row
-- triggers before it on everything that holds rows. Partitions that are kept alike are told once.
WITH leaves AS (
    SELECT c.oid, c.relkind FROM pg_class c
    WHERE c.oid = {name}::regclass AND c.relkind <> 'p'
    UNION ALL
    SELECT l.oid, l.relkind FROM pg_partition_tree({name}::regclass) p JOIN pg_class l ON l.oid = p.relid
    WHERE p.isleaf AND l.relkind <> 'p' AND l.oid <> {name}::regclass
)
SELECT json_build_object(
    'kind', c.relkind,
    'standby', pg_is_in_recovery(),
    'sees_all', pg_has_role('pg_read_all_stats', 'USAGE'),
    'identity', a.attidentity,
    'default', pg_get_expr(d.adbin, d.adrelid),
    'sequence', (
        SELECT json_build_object(
            'name', s.seqrelid::regclass::text,
            'cache', s.seqcache::text,
            'increment', s.seqincrement::text,
            'cycle', s.seqcycle
        )
        FROM pg_depend x JOIN pg_sequence s ON s.seqrelid = x.objid
        WHERE x.classid = 'pg_class'::regclass AND x.refclassid = 'pg_class'::regclass
        AND x.refobjid = c.oid AND x.refobjsubid = a.attnum AND x.deptype IN ('i', 'a')
        LIMIT 1
    ),
    'leaves', (SELECT coalesce(json_agg(x.leaf), '[]') FROM (
        SELECT DISTINCT jsonb_build_object(
            'kind', l.relkind,
            'identity', b.attidentity,
            'generated', b.attgenerated <> '',
            'fed', EXISTS (
                SELECT FROM pg_subscription_rel r WHERE r.srrelid IN (SELECT relid FROM pg_partition_ancestors(l.oid))
                OR r.srrelid = l.oid),
            'triggers', (
                SELECT coalesce(jsonb_agg(jsonb_build_object(
                    'name', t.tgname,
                    'enabled', t.tgenabled,
                    'insert', t.tgtype & 4 <> 0,
                    'update', t.tgtype & 16 <> 0,
                    'always', t.tgqual IS NULL AND cardinality(t.tgattr::int2[]) = 0,
                    'language', g.lanname,
                    'function', f.proname,
                    'source', f.prosrc,
                    'arguments', string_to_array(encode(t.tgargs, 'escape'), '\000')
                ) ORDER BY t.tgname), '[]')
                FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid JOIN pg_language g ON g.oid = f.prolang
                WHERE t.tgrelid = l.oid AND t.tgtype & 3 = 3 AND t.tgtype & 20 <> 0
            )
        ) AS leaf
        FROM leaves l JOIN pg_attribute b ON b.attrelid = l.oid AND b.attname = a.attname
    ) x)
)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = {column} AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.oid = {name}::regclass
