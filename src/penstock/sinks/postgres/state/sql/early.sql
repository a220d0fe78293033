-- How many ops came before their entity.
SELECT count(*)
FROM penstock_ops h
JOIN (
    SELECT h.pos,
           CASE WHEN max(h.pos) FILTER (WHERE h.deletes) OVER w IS NULL
                THEN k.alive OR max(h.pos) FILTER (WHERE h.creates) OVER w IS NOT NULL
                ELSE coalesce(max(h.pos) FILTER (WHERE h.creates) OVER w > max(h.pos) FILTER (WHERE h.deletes) OVER w,
                              false) END AS exists
    FROM penstock_heads h JOIN penstock_work k ON k.eid = h.eid JOIN penstock_ends e ON e.eid = h.eid
    WHERE {which}
    AND (e.gone IS NOT NULL OR (NOT k.alive AND (e.first_made IS NULL OR e.first_made > e.first_pos)))
    WINDOW w AS (PARTITION BY h.eid ORDER BY h.pos)
) d ON d.pos = h.pos
WHERE {which} AND NOT d.exists
