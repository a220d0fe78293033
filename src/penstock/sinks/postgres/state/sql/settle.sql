-- A fan-out decides its fields again where its match or one of its fields was written, or where an entity has come.
UPDATE penstock_work w
SET {sets}
FROM (
    SELECT k.eid, k.moved, l.fields
    FROM (
        SELECT w.*, w.wrote && {match_numbers}::integer[] AS moved,
               w.alive AND (w.born OR w.wrote && {all_numbers}::integer[]) AS decides, {match} AS match
        FROM penstock_work w WHERE w.wrote IS NOT NULL
    ) k
    LEFT JOIN {values} l ON k.decides AND {own} AND l.fan_out = {table} AND l.match = k.match
    WHERE k.moved OR k.decides
) z
WHERE z.eid = w.eid
