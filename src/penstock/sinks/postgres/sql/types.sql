-- Those of some types that are here and may be used, each with what lies behind it, in the words of the postgres source:
-- what a domain is made of, or the kind of a type that is not built in; [] for each array around it.
SELECT w.said, (
    WITH RECURSIVE chain AS (
        SELECT w.type, -1 AS modifier, 0 AS arrays
        UNION ALL
        SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END,
               CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE b.modifier END,
               b.arrays + (t.typtype <> 'd')::int
        FROM chain b JOIN pg_type t ON t.oid = b.type
        WHERE t.typtype = 'd' OR t.oid = (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
    )
    SELECT CASE WHEN t.typtype = 'e' THEN 'enum'
                WHEN t.typtype = 'c' THEN 'composite'
                WHEN t.typtype = 'r' THEN 'range'
                WHEN t.typtype = 'm' THEN 'multirange'
                WHEN t.typnamespace <> 'pg_catalog'::regnamespace THEN 'extension'
                ELSE format_type(b.type, b.modifier) END || repeat('[]', b.arrays)
    FROM chain b JOIN pg_type t ON t.oid = b.type
    WHERE t.typtype <> 'd' AND t.oid IS DISTINCT FROM (SELECT e.typarray FROM pg_type e WHERE e.oid = t.typelem)
)
FROM (SELECT said, to_regtype(said)::oid AS type FROM unnest({types}::text[]) said) w
WHERE w.type IS NOT NULL AND has_type_privilege(w.type, 'USAGE')
