-- For each entity: its first document and the first and the last that create it, and the last delete.
INSERT INTO penstock_ends
SELECT h.eid, min(h.pos), min(h.pos) FILTER (WHERE h.creates), max(h.pos) FILTER (WHERE h.creates),
       max(h.pos) FILTER (WHERE h.deletes)
FROM penstock_heads h
WHERE {which}
GROUP BY h.eid
