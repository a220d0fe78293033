-- Rows of a range, counted along the index up to a limit, and how many of them the user's condition lets through; and
-- whether the planner knows how its cursor is spread.
SELECT x.passed, x.matched,
       EXISTS (
           SELECT FROM pg_stats s
           JOIN pg_namespace n ON n.nspname = s.schemaname
           JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
           WHERE s.attname = {cursor} AND (
               c.oid = {name}::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree({name}::regclass)))
       )
FROM (
    SELECT count(*) AS passed, count(*) FILTER (WHERE t.matched) AS matched
    FROM (SELECT ({matched}) AS matched FROM {table} AS t WHERE {whole} ORDER BY {key} LIMIT {most}) t
) x
