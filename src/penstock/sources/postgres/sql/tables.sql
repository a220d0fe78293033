-- Tables by name, and every ordinary or partitioned table of a schema, with their primary keys.
SELECT n.nspname, c.relname, c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname = {schema}, ARRAY(
    SELECT a.attname::text
    FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = c.oid AND i.indisprimary AND k.n <= i.indnkeyatts
    ORDER BY k.n)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (
    (n.nspname = {schema} AND c.relkind IN ('r', 'p') AND NOT c.relispartition)
    OR (n.nspname, c.relname) IN (SELECT * FROM unnest({schemas}::text[], {names}::text[]))
)
ORDER BY 1, 2
