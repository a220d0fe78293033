-- Whether a table, or a partition of it, has another file than the transaction's snapshot knows.
SELECT coalesce(bool_or(c.relfilenode <> pg_relation_filenode(c.oid)), false)
FROM pg_class c
WHERE c.relfilenode <> 0
AND (c.oid = {oid}::oid OR c.oid IN (SELECT relid FROM pg_partition_tree({oid}::oid)))
