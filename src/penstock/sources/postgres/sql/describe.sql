-- One relation as the validations see it, in one round trip; no row if there is none of that name.
-- Only the key columns are asked for an order: finding it takes longest.
SELECT json_build_object(
    'oid', c.oid::text,
    'kind', c.relkind,
    'blocks', CASE WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid) / current_setting('block_size')::int END,
    'rows', CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END,
    'may_use_schema', has_schema_privilege(n.oid, 'USAGE'),
    'may_select', has_table_privilege(c.oid, 'SELECT'),
    'row_security', row_security_active(c.oid),
    'file', pg_relation_filenode(c.oid)::text,
    -- The sequence that numbers the first column of the key: its identity, its default, or the one that it owns.
    'sequence', (
        SELECT json_build_object(
            'name', s.seqrelid::regclass::text,
            'file', pg_relation_filenode(s.seqrelid)::text,
            'told', s.told,
            'last', CASE WHEN s.told THEN pg_sequence_last_value(s.seqrelid)::text END
        )
        FROM (
            SELECT x.refobjid AS oid, 1 AS rank FROM pg_attrdef d JOIN pg_depend x ON x.objid = d.oid
            WHERE d.adrelid = c.oid AND d.adnum = a.attnum
            AND x.classid = 'pg_attrdef'::regclass AND x.refclassid = 'pg_class'::regclass
            UNION ALL
            SELECT x.objid, 2 FROM pg_depend x
            WHERE x.classid = 'pg_class'::regclass AND x.refclassid = 'pg_class'::regclass
            AND x.refobjid = c.oid AND x.refobjsubid = a.attnum AND x.deptype IN ('i', 'a')
        ) found CROSS JOIN LATERAL (
            SELECT s.seqrelid, s.seqincrement > 0 AND has_sequence_privilege(s.seqrelid, 'SELECT, USAGE') AS told
            FROM pg_sequence s WHERE s.seqrelid = found.oid
        ) s
        ORDER BY found.rank LIMIT 1
    ),
    'inherited', c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
    'columns', (
        SELECT coalesce(json_agg(json_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            -- What lies behind domains, and what kind of type it is if it is not built in; [] for each array around it.
            'base', CASE WHEN y.typtype <> 'b' OR y.typcategory = 'A' OR y.typnamespace <> 'pg_catalog'::regnamespace
            THEN (
                WITH RECURSIVE base AS (
                    SELECT a.atttypid AS type, a.atttypmod AS modifier, 0 AS arrays
                    UNION ALL
                    SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END,
                           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE b.modifier END,
                           b.arrays + (t.typtype <> 'd')::int
                    FROM base b JOIN pg_type t ON t.oid = b.type
                    WHERE t.typtype = 'd' OR t.oid = (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
                )
                SELECT nullif(CASE WHEN t.typtype = 'e' THEN 'enum'
                                   WHEN t.typtype = 'c' THEN 'composite'
                                   WHEN t.typtype = 'r' THEN 'range'
                                   WHEN t.typtype = 'm' THEN 'multirange'
                                   WHEN t.typnamespace <> 'pg_catalog'::regnamespace THEN 'extension'
                                   ELSE format_type(b.type, b.modifier) END || repeat('[]', b.arrays),
                              format_type(a.atttypid, a.atttypmod))
                FROM base b JOIN pg_type t ON t.oid = b.type
                WHERE t.typtype <> 'd'
                  AND t.oid IS DISTINCT FROM (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
            ) END,
            'not_null', a.attnotnull,
            'may_select', has_column_privilege(c.oid, a.attnum, 'SELECT'),
            'order', CASE WHEN a.attname = ANY ({key}::text[]) THEN (
                WITH RECURSIVE base AS (
                    SELECT t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory
                    FROM pg_type t WHERE t.oid = a.atttypid
                    UNION ALL
                    SELECT t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory
                    FROM base b JOIN pg_type t ON t.oid = b.typbasetype WHERE b.typtype = 'd'
                )
                -- The comparison operators of an extension's type are not in pg_catalog, where ours are looked up.
                SELECT CASE WHEN b.typtype IN ('e', 'r', 'm') THEN 'built-in'
                            WHEN o.opcnamespace IS NULL THEN 'none'
                            WHEN o.opcnamespace = 'pg_catalog'::regnamespace OR b.typcategory = 'A' THEN 'built-in'
                            ELSE 'extension' END
                FROM base b LEFT JOIN LATERAL (
                    SELECT o.opcnamespace
                    FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod AND m.amname = 'btree'
                    CROSS JOIN (SELECT CASE WHEN b.typcategory = 'A' THEN b.typelem ELSE b.oid END AS compared) x
                    WHERE o.opcdefault AND (o.opcintype = x.compared OR EXISTS (
                        SELECT FROM pg_cast k WHERE k.castsource = x.compared AND k.casttarget = o.opcintype
                        AND k.castmethod = 'b' AND k.castcontext = 'i'))
                    ORDER BY o.opcintype = x.compared DESC LIMIT 1
                ) o ON true
                WHERE b.typtype <> 'd'
            ) END
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    -- Only indexes that can serve an ordered range read or prove uniqueness: whole, valid, of plain columns.
    'indexes', (
        SELECT coalesce(json_agg(json_build_object(
            'columns', k.columns,
            'unique', i.indisunique,
            'primary', i.indisprimary,
            'ascending', k.ascending,
            'descending', k.descending
        ) ORDER BY i.indexrelid), '[]')
        FROM pg_index i
        JOIN pg_class x ON x.oid = i.indexrelid
        JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
        CROSS JOIN LATERAL (
            SELECT json_agg(a.attname ORDER BY p.n) AS columns,
                   bool_and(o.opcdefault AND p.coll = a.attcollation AND p.opt = 0) AS ascending,
                   bool_and(o.opcdefault AND p.coll = a.attcollation AND p.opt = 3) AS descending
            FROM unnest(i.indkey::int2[], i.indclass::oid[], i.indcollation::oid[], i.indoption::int2[])
                WITH ORDINALITY AS p (attnum, opclass, coll, opt, n)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = p.attnum
            JOIN pg_opclass o ON o.oid = p.opclass
            WHERE p.n <= i.indnkeyatts
        ) k
        WHERE i.indrelid = c.oid AND i.indisvalid AND i.indislive AND i.indpred IS NULL AND i.indexprs IS NULL
    )
)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = ({key}::text[])[1] AND NOT a.attisdropped
WHERE n.nspname = {schema} AND c.relname = {name} AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
