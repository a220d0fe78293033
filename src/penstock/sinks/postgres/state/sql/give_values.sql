-- Entities take the last values of a fan-out for their match.
UPDATE penstock_work w
SET {sets}
FROM {values} l
WHERE {own} AND l.fan_out = {table} AND l.match = {match} AND w.alive
AND (w.touched = {seg} OR l.match IN (SELECT x.match FROM penstock_spread x WHERE x.fan_out = {number}))
AND ROW({now})::record *<> ROW({new})::record
