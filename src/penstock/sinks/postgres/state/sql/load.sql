-- The entities that documents name: from the table, or from the ops that wait for them.
INSERT INTO penstock_work (eid, existed, alive, was_early, since, {names})
SELECT y.eid, {found}, {found}, e.key IS NOT NULL, CASE WHEN NOT {found} THEN e.since END, {values}
FROM (SELECT DISTINCT ON (h.eid) h.eid, {heads} FROM penstock_heads h ORDER BY h.eid) y
LEFT JOIN {target} t ON {same}
LEFT JOIN LATERAL (SELECT e.* FROM {early} e WHERE {own} AND e.key = {key} LIMIT 1) e ON true
