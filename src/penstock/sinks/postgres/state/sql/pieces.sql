-- What a `query_op_set` compares (`inner_n` is 0), value by value, and what it applies.
CREATE TEMPORARY TABLE penstock_pieces ON COMMIT DROP AS
SELECT s.seq, s.pos, s.n, 0 AS inner_n, c.place::integer AS comparison, '' AS what, f.number AS field,
       v.value #>> '{{}}' AS value
FROM penstock_streams s
CROSS JOIN LATERAL jsonb_path_query(s.filter, 'strict $.** ? (exists (@.field))') WITH ORDINALITY c (filter, place)
CROSS JOIN LATERAL jsonb_array_elements(
    CASE WHEN c.filter ? 'in' THEN c.filter -> 'in' ELSE jsonb_build_array(c.filter -> 'eq') END
) v (value)
JOIN unnest({names}::text[], {numbers}::integer[]) f (name, number) ON f.name = c.filter ->> 'field'
WHERE s.what = 'query_op_set'
UNION ALL
SELECT s.seq, s.pos, s.n, i.n::integer, NULL,
       CASE WHEN i.op ? 'value' OR i.op ->> 'op' = 'add' THEN i.op ->> 'op' ELSE 'set' END, f.number, i.op ->> 'value'
FROM penstock_streams s
CROSS JOIN LATERAL jsonb_array_elements(s.ops) WITH ORDINALITY i (op, n)
JOIN unnest({names}::text[], {numbers}::integer[]) f (name, number) ON f.name = i.op ->> 'field'
WHERE s.what = 'query_op_set'
AND NOT EXISTS (SELECT FROM penstock_refused r WHERE r.pos = s.pos AND r.n = s.n AND r.inner_n = i.n)
