INSERT INTO {values} AS v (pipeline, stream, fan_out, match, fields)
SELECT {pipeline}, {stream}, ({tables}::text[])[x.fan_out + 1], x.match, x.fields FROM penstock_spread x
ON CONFLICT (pipeline, stream, fan_out, match) DO UPDATE SET fields = v.fields || excluded.fields
WHERE v.fields || excluded.fields <> v.fields
