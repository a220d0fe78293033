-- The triggers of a table, and of the tables below it, that may change a row on its way in, or keep it out: those that
-- run before it is written, each with what it runs for.
WITH RECURSIVE tree AS (
    SELECT {oid}::oid AS oid
    UNION
    SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid
)
SELECT DISTINCT t.tgname::text, concat_ws(' OR ',
    CASE WHEN t.tgtype & 4 <> 0 THEN 'INSERT' END,
    CASE WHEN t.tgtype & 16 <> 0 THEN 'UPDATE' END,
    CASE WHEN t.tgtype & 8 <> 0 THEN 'DELETE' END)
FROM tree JOIN pg_trigger t ON t.tgrelid = tree.oid
-- For each row (1), before it is written (2).
WHERE t.tgtype & 3 = 3 AND t.tgenabled IN ('O', 'A')
ORDER BY 1, 2
