-- Rows of a range, counted along the index, up to a limit; and whether the planner knows how its cursor is spread.
SELECT (SELECT count(*) FROM (SELECT FROM {table} AS t WHERE {whole} ORDER BY {key} LIMIT {most}) x),
       EXISTS (
           SELECT FROM pg_stats s
           JOIN pg_namespace n ON n.nspname = s.schemaname
           JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
           WHERE s.attname = {cursor} AND (
               c.oid = {name}::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree({name}::regclass)))
       )
