-- A fan-out decides its fields again where its match or one of its fields was written, or where an entity has come.
SELECT k.eid, k.alive, k.born, {wrote} AS wrote, {fields}
FROM (
    SELECT b.*, b.wrote && {match_numbers}::integer[] AS moved,
           b.alive AND (b.born OR b.wrote && {all_numbers}::integer[]) AS decides, {match} AS match
    FROM ({base}) b
    OFFSET 0
) k
LEFT JOIN LATERAL (
    SELECT l.fields FROM {values} l WHERE k.decides AND {own} AND l.fan_out = {table} AND l.match = k.match LIMIT 1
) l ON true
