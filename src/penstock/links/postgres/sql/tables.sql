-- Tables, views and foreign tables, each as one JSON document. `which` chooses them by c (pg_class) and n (pg_namespace).
-- Sections that take time are optional: an order for the `key` columns, `storage`, `writers`, `statistics`, `writing`.
SELECT jsonb_build_object(
    'name', c.relname,
    'oid', c.oid::text,
    'kind', c.relkind,
    'populated', c.relispopulated,
    'file', pg_relation_filenode(c.oid)::text,
    'blocks', CASE WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid) / current_setting('block_size')::int END,
    'rows', CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END,
    'may_use_schema', has_schema_privilege(n.oid, 'USAGE'),
    'may_select', has_table_privilege(c.oid, 'SELECT'),
    'row_security', row_security_active(c.oid),
    'inherited', c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid),
    -- The sequence that numbers the first key column: that of its identity or default, or one that it owns.
    'sequence', (
        SELECT jsonb_build_object(
            'name', s.seqrelid::regclass::text,
            'file', pg_relation_filenode(s.seqrelid)::text,
            'readable', s.readable,
            'last', CASE WHEN s.readable THEN pg_sequence_last_value(s.seqrelid)::text END,
            'cache', s.seqcache,
            'descends', s.seqincrement < 0 OR s.seqcycle,
            'cycles', s.seqcycle
        )
        FROM (
            SELECT x.refobjid AS oid, 1 AS rank FROM pg_attrdef d JOIN pg_depend x ON x.objid = d.oid
            WHERE d.adrelid = c.oid AND d.adnum = key.attnum
            AND x.classid = 'pg_attrdef'::regclass AND x.refclassid = 'pg_class'::regclass
            UNION ALL
            SELECT x.objid, 2 FROM pg_depend x
            WHERE x.classid = 'pg_class'::regclass AND x.refclassid = 'pg_class'::regclass
            AND x.refobjid = c.oid AND x.refobjsubid = key.attnum AND x.deptype IN ('i', 'a')
        ) used CROSS JOIN LATERAL (
            SELECT s.*, s.seqincrement > 0 AND has_sequence_privilege(s.seqrelid, 'SELECT, USAGE') AS readable
            FROM pg_sequence s WHERE s.seqrelid = used.oid
        ) s
        ORDER BY used.rank LIMIT 1
    ),
    'columns', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'base', nullif(CASE WHEN {writing} THEN behind.spelled ELSE behind.kind END,
                           format_type(a.atttypid, a.atttypmod)),
            'not_null', a.attnotnull,
            'may_select', has_column_privilege(c.oid, a.attnum, 'SELECT'),
            'identity', a.attidentity,
            'generated', a.attgenerated <> '',
            'filled', a.atthasdef OR a.attidentity <> '',
            'default', CASE WHEN {writers} AND a.atthasdef THEN (
                SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = c.oid AND d.adnum = a.attnum
            ) END,
            'order', CASE WHEN a.attname = ANY ({key}::text[]) THEN (
                WITH RECURSIVE base AS (
                    SELECT t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory
                    FROM pg_type t WHERE t.oid = a.atttypid
                    UNION ALL
                    SELECT t.oid, t.typtype, t.typbasetype, t.typelem, t.typcategory
                    FROM base b JOIN pg_type t ON t.oid = b.typbasetype WHERE b.typtype = 'd'
                )
                -- The comparison operators of an extension's type are not in pg_catalog, our search path.
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
        ) || CASE WHEN {writing} THEN jsonb_build_object(
            'free', behind.free,
            'built_in', behind.built_in,
            'limited', limits.limited,
            'inner', limits.limited AND (behind.arrays > 1 OR behind.typtype IN ('c', 'r')),
            'converted', EXISTS (SELECT FROM pg_cast k WHERE k.castsource = 'text'::regtype
                                 AND k.casttarget = behind.oid AND k.castmethod = 'f'),
            'collation', (
                SELECT format('%I.%I', m.nspname, l.collname)
                FROM pg_collation l JOIN pg_namespace m ON m.oid = l.collnamespace
                WHERE l.oid = a.attcollation AND l.collname <> 'default'
            ),
            -- An operator of an extension is not in pg_catalog, our search path.
            'equals', CASE WHEN NOT behind.built_in AND behind.arrays = 0 THEN (
                SELECT format('%I.%s', m.nspname, o.oprname)
                FROM pg_opclass s
                JOIN pg_am i ON i.oid = s.opcmethod AND i.amname = 'btree'
                JOIN pg_amop p ON p.amopfamily = s.opcfamily AND p.amopstrategy = 3
                AND p.amoplefttype = behind.oid AND p.amoprighttype = behind.oid
                JOIN pg_operator o ON o.oid = p.amopopr
                JOIN pg_namespace m ON m.oid = o.oprnamespace
                WHERE s.opcdefault AND s.opcintype = behind.oid
            ) END
        ) ELSE '{{}}' END ORDER BY a.attnum), '[]')
        FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid
        -- The type behind domains and arrays; [] for each array around it. A built-in type is its own.
        LEFT JOIN LATERAL (
            WITH RECURSIVE chain AS (
                SELECT a.atttypid AS type, a.atttypmod AS modifier, 0 AS arrays
                WHERE {writing} OR y.typtype <> 'b' OR y.typcategory = 'A'
                OR y.typnamespace <> 'pg_catalog'::regnamespace
                UNION ALL
                SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END,
                       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE b.modifier END,
                       b.arrays + (t.typtype <> 'd')::int
                FROM chain b JOIN pg_type t ON t.oid = b.type
                WHERE t.typtype = 'd' OR t.oid = (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
            )
            SELECT t.oid, t.typtype, b.arrays,
                   t.typnamespace = 'pg_catalog'::regnamespace AS built_in,
                   format_type(b.type, b.modifier) || repeat('[]', b.arrays) AS spelled,
                   format_type(b.type, -1) || repeat('[]', b.arrays) AS free,
                   CASE WHEN t.typtype = 'e' THEN 'enum'
                        WHEN t.typtype = 'c' THEN 'composite'
                        WHEN t.typtype = 'r' THEN 'range'
                        WHEN t.typtype = 'm' THEN 'multirange'
                        WHEN t.typnamespace <> 'pg_catalog'::regnamespace THEN 'extension'
                        ELSE format_type(b.type, b.modifier) END || repeat('[]', b.arrays) AS kind
            FROM chain b JOIN pg_type t ON t.oid = b.type
            WHERE t.typtype <> 'd' AND t.oid IS DISTINCT FROM (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
        ) behind ON true
        -- Whether a modifier limits a value, or any value inside it.
        LEFT JOIN LATERAL (
            WITH RECURSIVE parts AS (
                SELECT a.atttypid AS type, a.atttypmod AS modifier WHERE {writing}
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
        ) limits ON true
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    -- Only indexes that can serve an ordered range read or prove uniqueness: complete, valid, of plain columns.
    'indexes', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'columns', k.columns,
            'unique', i.indisunique,
            'primary', i.indisprimary,
            'immediate', i.indimmediate,
            'ordered', k.ascending OR k.descending
        ) ORDER BY i.indexrelid), '[]')
        FROM pg_index i
        JOIN pg_class x ON x.oid = i.indexrelid
        JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
        CROSS JOIN LATERAL (
            SELECT jsonb_agg(a.attname ORDER BY p.n) AS columns,
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
-- `storage`: the size, and the partitions that hold rows. `known`: partitions that a mark lists; those that still exist
-- are returned, attached or not.
|| CASE WHEN {storage} THEN jsonb_build_object(
    'bytes', CASE WHEN c.relkind IN ('r', 'm') THEN pg_table_size(c.oid) END,
    'known', ARRAY(SELECT k.oid::text FROM pg_class k WHERE k.oid = ANY ({known}::oid[]) ORDER BY k.oid),
    'partitions', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'oid', l.oid::text,
            'schema', s.nspname,
            'name', l.relname,
            'may_select', has_table_privilege(l.oid, 'SELECT') AND has_schema_privilege(s.oid, 'USAGE')
                AND NOT row_security_active(l.oid),
            -- Of a new partition: the condition that its rows meet, so that the planner can find them in the table.
            'bounds', CASE WHEN cardinality({known}::oid[]) > 0 AND NOT l.oid = ANY ({known}::oid[])
                           THEN pg_get_partition_constraintdef(l.oid) END,
            'blocks', pg_relation_size(l.oid) / current_setting('block_size')::int
        ) ORDER BY l.oid), '[]')
        FROM pg_partition_tree(CASE WHEN c.relkind = 'p' THEN c.oid END) p
        JOIN pg_class l ON l.oid = p.relid JOIN pg_namespace s ON s.oid = l.relnamespace
        WHERE p.isleaf AND l.relkind = 'r'
    )
) ELSE '{{}}' END
-- `writers`: the row triggers that fire before a write, on the table or on the partitions that hold its rows.
-- Partitions that are alike are listed once.
|| CASE WHEN {writers} THEN jsonb_build_object(
    'leaves', (SELECT coalesce(jsonb_agg(x.leaf), '[]') FROM (
        SELECT DISTINCT jsonb_build_object(
            'kind', l.relkind,
            'identity', b.attidentity,
            'subscribed', EXISTS (
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
        FROM (
            SELECT c.oid WHERE c.relkind <> 'p'
            UNION ALL
            SELECT p.relid FROM pg_partition_tree(CASE WHEN c.relkind = 'p' THEN c.oid END) p WHERE p.isleaf
        ) o (oid) JOIN pg_class l ON l.oid = o.oid AND l.relkind <> 'p'
        LEFT JOIN pg_attribute b ON b.attrelid = l.oid AND b.attname = key.attname
    ) x)
) ELSE '{{}}' END
-- `statistics`: sizes and changes of the table or of all its partitions.
|| CASE WHEN {statistics} THEN (
    SELECT jsonb_build_object('statistics', jsonb_build_object(
        'rows', CASE WHEN bool_and(l.reltuples >= 0) THEN sum(l.reltuples)::bigint END,
        'bytes', CASE WHEN c.relkind IN ('r', 'p', 'm') THEN coalesce(sum(pg_table_size(l.oid)), 0)::bigint END,
        'inserted', coalesce(sum(pg_stat_get_tuples_inserted(l.oid)), 0)::bigint,
        'updated', coalesce(sum(pg_stat_get_tuples_updated(l.oid)), 0)::bigint,
        'deleted', coalesce(sum(pg_stat_get_tuples_deleted(l.oid)), 0)::bigint
    ))
    FROM pg_class l
    WHERE CASE WHEN c.relkind = 'p' THEN l.oid IN (SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf)
               ELSE l.oid = c.oid AND c.relkind IN ('r', 'm', 'f') END
) ELSE '{{}}' END
-- `writing`: what the role may do with the table.
|| CASE WHEN {writing} THEN jsonb_build_object(
    'may_insert', has_table_privilege(c.oid, 'INSERT'),
    'may_update', has_table_privilege(c.oid, 'UPDATE'),
    'may_delete', has_table_privilege(c.oid, 'DELETE'),
    'owned', pg_has_role(c.relowner, 'USAGE'),
    'owns_below', (
        WITH RECURSIVE below AS (
            SELECT h.inhrelid AS oid FROM pg_inherits h WHERE h.inhparent = c.oid
            UNION
            SELECT h.inhrelid FROM below JOIN pg_inherits h ON h.inhparent = below.oid
        )
        SELECT coalesce(bool_and(pg_has_role(b.relowner, 'USAGE')), true) FROM below JOIN pg_class b USING (oid)
    )
) ELSE '{{}}' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute key ON key.attrelid = c.oid AND key.attname = ({key}::text[])[1] AND NOT key.attisdropped
WHERE n.nspname = {schema} AND {which}
ORDER BY c.relname
