-- The table that a stream lands in, in one round trip; no row if there is none of that name.
SELECT json_build_object(
    'oid', c.oid::text,
    'kind', c.relkind,
    'may_use_schema', has_schema_privilege(n.oid, 'USAGE'),
    'may_insert', has_table_privilege(c.oid, 'INSERT'),
    'may_update', has_table_privilege(c.oid, 'UPDATE'),
    'may_delete', has_table_privilege(c.oid, 'DELETE'),
    'may_select', has_table_privilege(c.oid, 'SELECT'),
    'owned', pg_has_role(c.relowner, 'USAGE'),
    'columns', (
        SELECT coalesce(json_agg(json_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'bare', format_type(a.atttypid, NULL),
            'base', CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) END,
            'limited', a.atttypmod <> -1 OR coalesce(t.typtypmod, -1) <> -1,
            'not_null', a.attnotnull,
            'filled', a.atthasdef OR a.attidentity <> '',
            'identity', a.attidentity,
            'generated', a.attgenerated <> ''
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    'uniques', (
        -- What ON CONFLICT can go by: whole rows, plain columns, checked at once.
        SELECT coalesce(json_agg(x.columns), '[]')
        FROM pg_index i
        CROSS JOIN LATERAL (
            SELECT json_agg(a.attname ORDER BY k.place) AS columns
            FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k (number, place)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
        ) x
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL
    )
)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name}
