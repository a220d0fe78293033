-- What could be read from a schema (or one relation of it), with sizes and changes by statistics, and with what fills
-- columns in. Partitions are part of their table; what belongs to an extension is not the user's.
SELECT json_build_object(
    'name', c.relname,
    'kind', c.relkind,
    'populated', c.relispopulated,
    'partitions', (SELECT count(*) FROM pg_inherits h WHERE c.relkind = 'p' AND h.inhparent = c.oid),
    'rows', s.rows,
    'bytes', s.bytes,
    'inserted', s.inserted,
    'updated', s.updated,
    'deleted', s.deleted,
    'columns', (
        SELECT coalesce(json_object_agg(a.attname, json_build_object(
            'default', pg_get_expr(d.adbin, d.adrelid),
            'identity', a.attidentity <> ''
        )), '{{}}')
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    -- Those that see a row before it is updated, in the order in which they fire.
    'triggers', (
        SELECT coalesce(json_agg(json_build_object(
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
        WHERE t.tgrelid = c.oid AND t.tgtype & 19 = 19
    )
)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_and(l.reltuples >= 0) THEN sum(l.reltuples)::bigint END AS rows,
           CASE WHEN c.relkind IN ('r', 'p', 'm') THEN coalesce(sum(pg_table_size(l.oid)), 0)::bigint END AS bytes,
           coalesce(sum(pg_stat_get_tuples_inserted(l.oid)), 0)::bigint AS inserted,
           coalesce(sum(pg_stat_get_tuples_updated(l.oid)), 0)::bigint AS updated,
           coalesce(sum(pg_stat_get_tuples_deleted(l.oid)), 0)::bigint AS deleted
    FROM pg_class l
    WHERE CASE WHEN c.relkind = 'p' THEN l.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf)
               ELSE l.oid = c.oid AND c.relkind IN ('r', 'm', 'f') END
) s
WHERE n.nspname = {schema} AND ({name}::text IS NULL OR c.relname = {name}::text)
AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
AND NOT EXISTS (
    SELECT FROM pg_depend x
    WHERE x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.objsubid = 0 AND x.deptype = 'e'
)
ORDER BY c.relname
