-- Whether a relation that is read and a table that is written have rows in common: they are the same, one is a partition
-- of the other, or the relation is a view on the table (where views are asked for).
WITH RECURSIVE reads AS (
    SELECT to_regclass({source})::oid AS oid
    UNION
    SELECT x.oid
    FROM reads r
    CROSS JOIN LATERAL (
        SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = r.oid
        UNION ALL
        SELECT d.refobjid
        FROM pg_rewrite w
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
        AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'n'
        WHERE w.ev_class = r.oid AND {views}
    ) x (oid)
), writes AS (
    SELECT {oid}::oid AS oid
    UNION
    SELECT h.inhrelid FROM writes w JOIN pg_inherits h ON h.inhparent = w.oid
)
SELECT EXISTS (SELECT FROM reads JOIN writes USING (oid))
