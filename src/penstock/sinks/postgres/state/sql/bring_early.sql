-- What waits for entities that no document of the slice names.
INSERT INTO penstock_work (eid, existed, alive, was_early, since, {names})
SELECT coalesce((SELECT max(eid) FROM penstock_work), 0) + row_number() OVER (), false, false, true, e.since, {values}
FROM {early} e
WHERE {own} AND e.key NOT IN (SELECT {key} FROM penstock_work w WHERE w.was_early)
