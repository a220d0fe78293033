-- The ends of a range of a key, and the distribution of the key's first column by the statistics.
-- Three index lookups and the catalog: no other row of the table is read.
WITH ends AS MATERIALIZED (
    SELECT (SELECT {lead} FROM {table} AS t ORDER BY {key} LIMIT 1) AS lowest,
           (SELECT {lead} FROM {table} AS t WHERE {whole} ORDER BY {key} LIMIT 1) AS first,
           (SELECT {lead} FROM {table} AS t WHERE {whole} ORDER BY {backwards} LIMIT 1) AS last
), statistics AS MATERIALIZED (
    SELECT s.histogram_bounds::text::text[] AS bounds, s.most_common_freqs AS common
    FROM pg_stats s
    WHERE s.schemaname = {schema} AND s.tablename = {name} AND s.attname = {column}
    ORDER BY s.inherited LIMIT 1
), bounds AS MATERIALIZED (
    SELECT b.n, b.place, {number_of_place} AS number,
           b.place::{type} <= ends.first AS before, b.place::{type} >= ends.last AS behind
    FROM statistics CROSS JOIN ends CROSS JOIN unnest(statistics.bounds) WITH ORDINALITY AS b (place, n)
)
SELECT json_build_object(
    'lowest_number', {number_of_lowest},
    'first', ends.first::text,
    'first_number', {number_of_first},
    'last', ends.last::text,
    'last_number', {number_of_last},
    'inside', (
        SELECT coalesce(json_agg(json_build_array(place, number) ORDER BY n), '[]')
        FROM bounds WHERE NOT before AND NOT behind
    ),
    'before', (SELECT json_build_array(place, number) FROM bounds WHERE before ORDER BY n DESC LIMIT 1),
    'behind', (SELECT json_build_array(place, number) FROM bounds WHERE behind ORDER BY n LIMIT 1),
    'span', (SELECT max(number) - min(number) FROM bounds),
    'buckets', (SELECT cardinality(bounds) - 1 FROM statistics),
    'most_common', (SELECT max(f) FROM statistics, unnest(common) f),
    'common', (SELECT sum(f) FROM statistics, unnest(common) f),
    'changed', pg_stat_get_mod_since_analyze({regclass}::regclass)
)
FROM ends
