UPDATE penstock_work w
SET alive = coalesce(e.made > coalesce(e.gone, -1), false) OR (w.alive AND e.gone IS NULL),
    born = coalesce(e.made > coalesce(e.gone, -1), false) AND NOT (w.alive AND e.gone IS NULL),
    since = CASE WHEN x.eid IS NOT NULL THEN x.at WHEN e.gone IS NULL THEN w.since END,
    touched = {seg}, wrote = {wrote}, {sets}
FROM penstock_ends e
LEFT JOIN (
    SELECT l.eid, array_agg(DISTINCT l.field) AS wrote, {columns} FROM penstock_last l GROUP BY l.eid
) p ON p.eid = e.eid
LEFT JOIN penstock_since x ON x.eid = e.eid
WHERE w.eid = e.eid
