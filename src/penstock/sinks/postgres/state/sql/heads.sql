-- The documents of single entities. `seg`: how many barriers come before; `round`: which one of its entity it is, where
-- only one at a time can be folded.
CREATE TEMPORARY TABLE penstock_heads ON COMMIT DROP AS
SELECT g.*, {round} AS round
FROM (
    SELECT h.*, dense_rank() OVER (ORDER BY {keys}) AS eid, {seg} AS seg
    FROM (
        SELECT d.pos, coalesce(d.at, now()) AS at, coalesce(d.doc -> 'creates' = 'true', false) AS creates,
               d.doc -> 'ops' = '[{{"op": "delete"}}]' AS deletes, {reads}
        FROM penstock_documents d
        WHERE d.good AND d.doc ? 'key'
    ) h
) g
