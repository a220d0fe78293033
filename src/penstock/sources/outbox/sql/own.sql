-- The function that a pipeline uses on a table. `applied_at` stays where the table has been watched without a gap.
INSERT INTO {owners} AS o (pipeline, relation, relation_oid, function) VALUES ({values})
ON CONFLICT (pipeline, relation) DO UPDATE SET
    relation_oid = excluded.relation_oid,
    function = excluded.function,
    applied_at = CASE WHEN {watched} THEN o.applied_at ELSE excluded.applied_at END
