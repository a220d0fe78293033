-- Entities take the last values of a fan-out for their match. Each looks them up by itself: without statistics the
-- server believes that a stream has one row there, and would compare every row with every entity.
UPDATE penstock_work w
SET {sets}
FROM (
    SELECT k.eid, l.fields
    FROM penstock_work k CROSS JOIN LATERAL (
        SELECT l.fields FROM {values} l WHERE {own} AND l.fan_out = {table} AND l.match = {match} LIMIT 1
    ) l
    WHERE k.alive
    AND (k.touched = {seg} OR {match} IN (SELECT x.match FROM penstock_spread x WHERE x.fan_out = {number}))
) l
WHERE l.eid = w.eid AND ROW({now})::record *<> ROW({new})::record
