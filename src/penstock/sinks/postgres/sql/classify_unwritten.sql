-- What became of each row of a slice that its merge has not written. Rows that this transaction wrote are left out;
-- `pending` rows were changed by another session in the meantime.
SELECT what, count(*)
FROM (
    SELECT CASE
        WHEN {delete} AND {ignored} THEN 'ignored'
        WHEN {absent} THEN CASE WHEN {delete} THEN 'equal' ELSE 'pending' END
        WHEN t.xmin = pg_current_xact_id()::xid OR t.xmin = ANY ({own_xids}::xid[]) THEN 'written'
        WHEN NOT {guarded} THEN 'refused'
        WHEN {delete} THEN CASE WHEN {marked} THEN 'equal' WHEN {not_stale} THEN 'pending' ELSE 'stale' END
        WHEN NOT {differs} THEN 'equal'
        WHEN NOT {newer} THEN 'stale'
        ELSE 'pending'
    END AS what
    FROM {relation} s LEFT JOIN {target} t ON {same}
) x
GROUP BY what
