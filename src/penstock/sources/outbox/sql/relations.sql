-- A table, and every partition and table that inherits from it: who owns it, and whether it has rows of its own.
WITH RECURSIVE below AS (
    SELECT c.oid, 0 AS depth
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname = {name}
    UNION
    SELECT h.inhrelid, b.depth + 1 FROM below b JOIN pg_inherits h ON h.inhparent = b.oid
)
SELECT n.nspname::text, c.relname::text, c.oid::text, c.relkind::text, b.depth = 0,
       pg_has_role(c.relowner, 'USAGE'), c.relispartition,
       EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = c.oid) AS inherits
FROM below b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY b.depth, n.nspname, c.relname
