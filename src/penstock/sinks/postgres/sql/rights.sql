-- The rights of the role in the schema of penstock's own tables, and on each table those that it lacks.
SELECT current_user::text, current_database()::text, has_database_privilege(current_database(), 'CREATE'),
    n.oid IS NOT NULL, coalesce(has_schema_privilege(n.oid, 'USAGE'), false),
    coalesce(has_schema_privilege(n.oid, 'CREATE'), false),
    (
        SELECT coalesce(json_object_agg(c.relname, lacking.rights), '{{}}')
        FROM pg_class c
        CROSS JOIN LATERAL (
            SELECT json_agg(r.name) AS rights FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r (name)
            WHERE NOT has_table_privilege(c.oid, r.name)
        ) lacking
        WHERE c.relnamespace = n.oid AND c.relname IN ('ledger', 'slices', 'quarantine', 'states', 'early_ops', 'fan_out_values') AND c.relkind IN ('r', 'p')
        AND lacking.rights IS NOT NULL
    )
FROM (SELECT) one LEFT JOIN pg_namespace n ON n.nspname = {schema}
