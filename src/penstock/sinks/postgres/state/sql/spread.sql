INSERT INTO penstock_spread
SELECT x.fan_out, x.match, jsonb_object_agg(v.key, v.value ORDER BY x.seq)
FROM penstock_fans x CROSS JOIN LATERAL jsonb_each(x.fields) v
WHERE {which}
GROUP BY x.fan_out, x.match
