-- Entities of the table that are not here yet.
INSERT INTO penstock_work (eid, existed, alive, was_early, touched, {names})
SELECT coalesce((SELECT max(eid) FROM penstock_work), 0) + row_number() OVER (), true, true, false, {seg}, {own}
FROM {target} t {joined}
WHERE {which} AND NOT EXISTS (SELECT FROM penstock_work w WHERE {same})
