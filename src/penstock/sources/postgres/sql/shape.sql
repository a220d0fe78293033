-- A relation as its first load needs it, in one round trip: what it is, how large, and its partitions.
-- {known}: partitions of which a mark speaks; those that are still there are given back, attached or not.
SELECT json_build_object(
    'oid', c.oid::text,
    'kind', c.relkind,
    'may_select', has_table_privilege(c.oid, 'SELECT'),
    'row_security', row_security_active(c.oid),
    'file', pg_relation_filenode(c.oid)::text,
    'blocks', CASE WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid) / current_setting('block_size')::int END,
    'bytes', CASE WHEN c.relkind IN ('r', 'm') THEN pg_table_size(c.oid) END,
    'known', ARRAY(SELECT k.oid::text FROM pg_class k WHERE k.oid = ANY ({known}::oid[]) ORDER BY k.oid),
    'leaves', (
        SELECT coalesce(json_agg(json_build_object(
            'oid', l.oid::text,
            'schema', n.nspname,
            'name', l.relname,
            'may_select', has_table_privilege(l.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')
                AND NOT row_security_active(l.oid),
            -- Of one that is new: what its rows have in common, so that they can be found by way of the table.
            'bounds', CASE WHEN cardinality({known}::oid[]) > 0 AND NOT l.oid = ANY ({known}::oid[])
                           THEN pg_get_partition_constraintdef(l.oid) END,
            'blocks', pg_relation_size(l.oid) / current_setting('block_size')::int
        ) ORDER BY l.oid), '[]')
        FROM pg_partition_tree(CASE WHEN c.relkind = 'p' THEN c.oid END) p
        JOIN pg_class l ON l.oid = p.relid JOIN pg_namespace n ON n.oid = l.relnamespace
        WHERE p.isleaf AND l.relkind = 'r'
    )
)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name} AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
