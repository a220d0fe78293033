-- When the first op came of those that wait for their entity: the first one after nothing was known of it. An item is a
-- field, or a value of a field with several; what is known is counted after each document.
WITH waiting AS MATERIALIZED (
    SELECT k.*, e.gone
    FROM penstock_ends e JOIN penstock_work k ON k.eid = e.eid
    WHERE coalesce(e.made, -1) <= coalesce(e.gone, -1) AND (e.gone IS NOT NULL OR NOT k.alive)
), named AS MATERIALIZED (
    SELECT h.eid, h.pos, h.n, h.field, h.adds, h.value, h.field >= {multi} AS is_multi
    FROM penstock_ops h JOIN waiting w ON w.eid = h.eid
    WHERE {which} AND h.pos > coalesce(w.gone, -1)
), events (eid, pos, n, field, item, is_there) AS (
    SELECT w.eid, -1::bigint, 0, b.field, b.item, true
    FROM waiting w CROSS JOIN LATERAL ({before}) b (field, item)
    WHERE w.gone IS NULL AND b.item IS NOT NULL
    UNION ALL
    SELECT x.eid, x.pos, x.n, x.field, CASE WHEN x.is_multi THEN {spelled} ELSE '' END,
           CASE WHEN x.is_multi THEN x.adds ELSE x.value IS NOT NULL END
    FROM named x
    {resets}
), counted AS (
    SELECT v.eid, v.pos, sum(v.is_there::integer - v.was_there) OVER (PARTITION BY v.eid ORDER BY v.pos) AS known
    FROM (
        SELECT y.*, coalesce(lag(y.is_there::integer) OVER (
            PARTITION BY y.eid, y.field, y.item COLLATE "C" ORDER BY y.pos, y.n
        ), 0) AS was_there
        FROM events y
    ) v
), emptied AS (
    SELECT c.eid, max(c.pos) AS pos FROM counted c WHERE c.known = 0 AND c.pos >= 0 GROUP BY c.eid
)
INSERT INTO penstock_since
SELECT DISTINCT ON (w.eid) w.eid, CASE WHEN w.gone IS NULL AND m.eid IS NULL THEN coalesce(w.since, h.at) ELSE h.at END
FROM waiting w
JOIN penstock_heads h ON h.eid = w.eid
LEFT JOIN emptied m ON m.eid = w.eid
WHERE {which} AND h.pos > greatest(w.gone, m.pos, -1) AND EXISTS (SELECT FROM named x WHERE x.pos = h.pos)
ORDER BY w.eid, h.pos
