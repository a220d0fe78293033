-- Values are tried by the thousand, and one by one only where one of a thousand does not fit: each trial is a
-- subtransaction.
WITH given AS MATERIALIZED (
    SELECT x.pos, x.n, x.inner_n, x.field, x.value FROM {relation} x
    WHERE x.value IS NOT NULL AND x.field = ANY ({numbers}::integer[])
), bad AS MATERIALIZED (
    SELECT g.field, g.pos >> 10 AS chunk FROM given g GROUP BY 1, 2
    HAVING pg_temp.penstock_misfit(g.field, array_agg(g.value)) IS NOT NULL
), tried AS MATERIALIZED (
    SELECT g.pos, g.n, g.inner_n, g.field, pg_temp.penstock_misfit(g.field, ARRAY[g.value]) AS code
    FROM given g JOIN bad b ON b.field = g.field AND b.chunk = g.pos >> 10
), added AS (
    INSERT INTO penstock_refused
    SELECT DISTINCT ON (t.pos, t.n, t.inner_n) t.pos, t.n, t.inner_n, t.code, t.field::text
    FROM tried t WHERE t.code IS NOT NULL
    RETURNING code, reason
)
SELECT DISTINCT code, reason FROM added
