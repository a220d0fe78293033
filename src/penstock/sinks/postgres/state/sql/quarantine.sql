-- Put what was refused of a slice into the quarantine: the document as it came, the op, and the reason.
INSERT INTO {schema}.quarantine (pipeline, stream, number, target, key, row, columns, code, reason)
SELECT {pipeline}, {stream}, {number}, {target}, json_build_object('id', d.id, 'op', o.op),
       json_build_object('id', d.id, 'at', d.at, 'document', x.document, 'op', o.op), {columns}, r.code, r.reason
FROM penstock_refused r
JOIN penstock_documents d ON d.pos = r.pos
JOIN {staging} x ON x.{place} = d.place
CROSS JOIN LATERAL (
    SELECT CASE WHEN r.n = 0 THEN NULL
                WHEN r.inner_n = 0 THEN d.doc -> 'ops' -> (r.n - 1)
                ELSE d.doc -> 'ops' -> (r.n - 1) -> 'ops' -> (r.inner_n - 1) END AS op
) o
ORDER BY r.pos, r.n, r.inner_n
