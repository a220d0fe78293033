-- The triggers that call functions of the outbox's schema, and these functions, as one JSON document.
SELECT jsonb_build_object(
    'functions', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'name', p.proname, 'body', p.prosrc, 'settings', coalesce(to_jsonb(p.proconfig), '[]'),
            'definer', p.prosecdef)), '[]')
        FROM pg_proc p WHERE p.pronamespace = n.oid AND starts_with(p.proname, {prefix})
    ),
    'triggers', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'schema', m.nspname, 'relation', c.relname, 'name', t.tgname, 'function', p.proname,
            'enabled', t.tgenabled, 'truncate', t.tgtype & 32 <> 0, 'kind', t.tgtype, 'condition', t.tgqual IS NOT NULL,
            'of_columns', t.tgattr::text <> '', 'inherited', t.tgparentid <> 0)), '[]')
        FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
        JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace m ON m.oid = c.relnamespace
        WHERE p.pronamespace = n.oid AND starts_with(p.proname, {prefix})
    )
)
FROM pg_namespace n WHERE n.nspname = {schema}
