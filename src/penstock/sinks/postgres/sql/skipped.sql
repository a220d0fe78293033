-- What became of each row of a slice that its merge has not written: rows that this transaction wrote are passed over.
SELECT what, count(*)
FROM (
    SELECT CASE
        WHEN {delete} AND {ignored} THEN 'ignored'
        WHEN {absent} THEN CASE WHEN {delete} THEN 'equal' ELSE 'again' END
        WHEN t.xmin = pg_current_xact_id()::xid OR t.xmin = ANY ({ours}::xid[]) THEN 'written'
        WHEN NOT {guarded} THEN 'refused'
        WHEN {delete} THEN CASE WHEN {dead} THEN 'equal' WHEN {late} THEN 'again' ELSE 'stale' END
        WHEN NOT {differs} THEN 'equal'
        WHEN NOT {newer} THEN 'stale'
        ELSE 'again'
    END AS what
    FROM {relation} s LEFT JOIN {target} t ON {same}
) x
GROUP BY what
