-- Add rows to the quarantine, each as it was staged, in the transaction of its slice.
INSERT INTO {schema}.quarantine (pipeline, stream, number, target, key, row, columns, code, reason)
SELECT %(pipeline)s, %(stream)s, %(number)s, %(target)s,
       (SELECT coalesce(json_object_agg(k.name, r.row -> k.name), '{{}}')
        FROM unnest(%(names)s::text[]) k (name)),
       r.row, %(columns)s::json, b.code, b.reason
FROM unnest(%(places)s::bigint[], %(codes)s::text[], %(reasons)s::text[]) b (place, code, reason)
JOIN {staging} x ON x.{place} = b.place
CROSS JOIN LATERAL (SELECT row_to_json(y) AS row FROM (SELECT {members}) y) r
ORDER BY b.place
