-- The greatest key after a mark at or below each of some places; none where no row lies so low.
-- A second upper bound inside would be where the server begins to look, however far that is.
SELECT x.*
FROM (VALUES {places}) AS p (n, place) CROSS JOIN LATERAL (
    SELECT {key} FROM {table} AS t WHERE {lead} <= p.place AND {after} ORDER BY {backwards} LIMIT 1
) t
CROSS JOIN LATERAL (SELECT {texts}) x
WHERE {upto}
ORDER BY p.n
