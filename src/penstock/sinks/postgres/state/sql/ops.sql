-- The ops on single entities, but for deletes; `value` is NULL where a field becomes null.
CREATE TEMPORARY TABLE penstock_ops ON COMMIT DROP AS
SELECT h.pos, o.n::integer AS n, 0 AS inner_n, h.eid, h.seg, h.round, f.number AS field, o.op ->> 'op' = 'add' AS adds,
       o.op ->> 'value' AS value
FROM penstock_heads h
JOIN penstock_documents d ON d.pos = h.pos
CROSS JOIN LATERAL jsonb_array_elements(d.doc -> 'ops') WITH ORDINALITY o (op, n)
JOIN unnest({names}::text[], {numbers}::integer[]) f (name, number) ON f.name = o.op ->> 'field'
WHERE NOT h.deletes
AND NOT EXISTS (SELECT FROM penstock_refused r WHERE r.pos = h.pos AND r.n = o.n)
