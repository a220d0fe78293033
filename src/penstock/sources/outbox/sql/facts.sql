-- The outbox: its size, how many documents it has by statistics, and how old the oldest one is.
SELECT greatest(c.reltuples::bigint, s.n_live_tup, 0), pg_total_relation_size(c.oid),
       (SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8
        FROM (SELECT DISTINCT ON (stream) created_at FROM {outbox} ORDER BY stream, id) first)
FROM pg_class c LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.oid = {name}::regclass
