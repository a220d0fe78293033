-- The ops that concern many entities, in their order. `fan_out`: the number of the declared one.
CREATE TEMPORARY TABLE penstock_streams ON COMMIT DROP AS
SELECT (d.pos << 24) + o.n AS seq, d.pos, o.n::integer AS n, o.op ->> 'op' AS what, f.number AS field,
       a.number AS fan_out, o.op -> 'where' AS filter, o.op -> 'ops' AS ops
FROM penstock_documents d
CROSS JOIN LATERAL jsonb_array_elements(d.doc -> 'ops') WITH ORDINALITY o (op, n)
LEFT JOIN unnest({names}::text[], {numbers}::integer[]) f (name, number) ON f.name = o.op ->> 'field'
LEFT JOIN unnest({tables}::text[]) WITH ORDINALITY b (name, place) ON b.name = d.doc ->> 'table'
CROSS JOIN LATERAL (SELECT (b.place - 1)::integer AS number) a
WHERE d.good AND NOT d.doc ? 'key'
AND NOT EXISTS (SELECT FROM penstock_refused r WHERE r.pos = d.pos AND r.n = o.n AND r.inner_n = 0)
