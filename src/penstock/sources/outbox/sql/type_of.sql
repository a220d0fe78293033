-- A type as a column has it: its name, and what it is made of where it is a domain, or its kind where it is not built in.
WITH RECURSIVE behind AS (
    SELECT t.oid, t.typtype, t.typbasetype, t.typtypmod, t.typnamespace, {modifier}::int AS modifier
    FROM pg_type t WHERE t.oid = {oid}::oid
    UNION ALL
    SELECT t.oid, t.typtype, t.typbasetype, t.typtypmod, t.typnamespace, b.typtypmod
    FROM behind b JOIN pg_type t ON t.oid = b.typbasetype WHERE b.typtype = 'd'
)
SELECT format_type({oid}::oid, {modifier}::int),
       CASE WHEN b.typnamespace <> 'pg_catalog'::regnamespace
            THEN CASE b.typtype WHEN 'e' THEN 'enum' WHEN 'c' THEN 'composite' ELSE 'extension' END
            WHEN b.oid <> {oid}::oid THEN format_type(b.oid, b.modifier) END
FROM behind b WHERE b.typtype <> 'd'
