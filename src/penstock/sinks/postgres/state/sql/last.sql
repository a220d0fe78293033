-- The last op on each field of an entity, and on each value of a field with several, after the entity's last delete.
INSERT INTO penstock_last
SELECT DISTINCT ON (o.eid, o.field, o.spelled) o.eid, o.field, o.pos, o.adds,
       CASE WHEN o.is_multi THEN o.spelled ELSE o.value END
FROM (
    SELECT h.*, m.is_multi, CASE WHEN m.is_multi THEN {spelled} END COLLATE "C" AS spelled
    FROM penstock_ops h JOIN penstock_ends e ON e.eid = h.eid
    CROSS JOIN LATERAL (SELECT h.field >= {multi} AS is_multi) m
    CROSS JOIN LATERAL (SELECT h.value, h.field) x
    WHERE {which} AND h.pos > coalesce(e.gone, -1)
) o
ORDER BY o.eid, o.field, o.spelled, o.pos DESC, o.n DESC
