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
    'owns_below', (
        WITH RECURSIVE below AS (
            SELECT h.inhrelid AS oid FROM pg_inherits h WHERE h.inhparent = c.oid
            UNION
            SELECT h.inhrelid FROM below JOIN pg_inherits h ON h.inhparent = below.oid
        )
        SELECT coalesce(bool_and(pg_has_role(b.relowner, 'USAGE')), true) FROM below JOIN pg_class b USING (oid)
    ),
    'columns', (
        SELECT coalesce(json_agg(json_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'base', nullif(behind.spelt, format_type(a.atttypid, a.atttypmod)),
            'free', behind.free,
            'limited', inside.limited,
            'inner', inside.limited AND (behind.arrays > 1 OR behind.kind IN ('c', 'r')),
            'built_in', behind.built_in,
            'converted', behind.converted,
            'collation', (
                SELECT format('%I.%I', m.nspname, l.collname)
                FROM pg_collation l JOIN pg_namespace m ON m.oid = l.collnamespace
                WHERE l.oid = a.attcollation AND l.collname <> 'default'
            ),
            'equals', behind.equals,
            'not_null', a.attnotnull,
            'filled', a.atthasdef OR a.attidentity <> '',
            'identity', a.attidentity,
            'generated', a.attgenerated <> ''
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute a
        -- What lies behind domains and arrays; [] for each array around it.
        CROSS JOIN LATERAL (
            WITH RECURSIVE chain AS (
                SELECT a.atttypid AS type, a.atttypmod AS modifier, 0 AS arrays
                UNION ALL
                SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END,
                       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE b.modifier END,
                       b.arrays + (t.typtype <> 'd')::int
                FROM chain b JOIN pg_type t ON t.oid = b.type
                WHERE t.typtype = 'd' OR t.oid = (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
            )
            SELECT format_type(b.type, b.modifier) || repeat('[]', b.arrays) AS spelt,
                   format_type(b.type, -1) || repeat('[]', b.arrays) AS free,
                   b.arrays,
                   t.typtype AS kind,
                   t.typnamespace = 'pg_catalog'::regnamespace AS built_in,
                   EXISTS (SELECT FROM pg_cast k WHERE k.castsource = 'text'::regtype AND k.casttarget = t.oid
                           AND k.castmethod = 'f') AS converted,
                   -- An operator of an extension's is not in pg_catalog, where ours are looked up.
                   CASE WHEN t.typnamespace <> 'pg_catalog'::regnamespace AND b.arrays = 0 THEN (
                       SELECT format('%I.%s', m.nspname, o.oprname)
                       FROM pg_opclass s
                       JOIN pg_am i ON i.oid = s.opcmethod AND i.amname = 'btree'
                       JOIN pg_amop p ON p.amopfamily = s.opcfamily AND p.amopstrategy = 3
                       AND p.amoplefttype = t.oid AND p.amoprighttype = t.oid
                       JOIN pg_operator o ON o.oid = p.amopopr
                       JOIN pg_namespace m ON m.oid = o.oprnamespace
                       WHERE s.opcdefault AND s.opcintype = t.oid
                   ) END AS equals
            FROM chain b JOIN pg_type t ON t.oid = b.type
            WHERE t.typtype <> 'd' AND t.oid IS DISTINCT FROM (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
        ) behind
        -- Whether a modifier limits it, or any value inside it.
        CROSS JOIN LATERAL (
            WITH RECURSIVE parts AS (
                SELECT a.atttypid AS type, a.atttypmod AS modifier
                UNION
                SELECT p.type, p.modifier
                FROM parts b JOIN pg_type t ON t.oid = b.type
                CROSS JOIN LATERAL (
                    SELECT t.typbasetype, t.typtypmod WHERE t.typtype = 'd'
                    UNION ALL
                    SELECT t.typelem, b.modifier WHERE t.typelem <> 0 AND t.typtype <> 'd'
                    UNION ALL
                    SELECT m.atttypid, m.atttypmod FROM pg_attribute m
                    WHERE t.typtype = 'c' AND m.attrelid = t.typrelid AND m.attnum > 0 AND NOT m.attisdropped
                    UNION ALL
                    SELECT r.rngsubtype, -1 FROM pg_range r WHERE r.rngtypid = t.oid
                ) p (type, modifier)
            )
            SELECT bool_or(modifier <> -1) AS limited FROM parts
        ) inside
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
