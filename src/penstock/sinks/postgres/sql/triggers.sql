-- The triggers of a table, and of the tables below it, that run for our rows, apart from those of its own constraints.
WITH RECURSIVE tree AS (
    SELECT {oid}::oid AS oid
    UNION
    SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid
)
SELECT n.nspname, c.relname, t.tgname, t.tgenabled = 'A'
FROM tree
JOIN pg_class c ON c.oid = tree.oid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_trigger t ON t.tgrelid = c.oid
-- Until Postgres 14 the copy of a trigger in a partition looks like one of the server's own, but for its constraint.
WHERE t.tgenabled IN ('O', 'A') AND (NOT t.tgisinternal OR t.tgconstraint = 0)
ORDER BY 1, 2, 3
