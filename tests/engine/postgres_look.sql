-- Everything that there is to see, in one round trip: the rows, the slices, what the ledger holds, what is staged.
SELECT
    coalesce((SELECT json_agg(json_build_array(place, key, version, born)) FROM {table}), '[]'),
    coalesce((
        SELECT json_agg(json_build_array(
            s.number, s.id, s.previous, s.kind, s.rows, s.outcome, s.xmin::text, m.after::json, m.upto::json
        ) ORDER BY s.number)
        FROM {schema}.slices s LEFT JOIN {schema}.marks m USING (id) WHERE s.pipeline = 'p'
    ), '[]'),
    (SELECT id FROM {schema}.ledger WHERE pipeline = 'p'),
    coalesce((
        SELECT json_agg(relname) FROM pg_class
        WHERE relnamespace = to_regnamespace({name}) AND relkind = 'r' AND relname LIKE 's\_%'
    ), '[]')
