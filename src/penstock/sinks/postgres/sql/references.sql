-- Which of some tables refer to which others of them by a foreign key.
SELECT DISTINCT cn.nspname::text, c.relname::text, pn.nspname::text, p.relname::text
FROM pg_constraint f
JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace
JOIN pg_class p ON p.oid = f.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
JOIN unnest({schemas}::text[], {names}::text[]) a (schema, name) ON a.schema = cn.nspname AND a.name = c.relname
JOIN unnest({schemas}::text[], {names}::text[]) b (schema, name) ON b.schema = pn.nspname AND b.name = p.relname
WHERE f.contype = 'f' AND f.conrelid <> f.confrelid
