INSERT INTO {early} (pipeline, stream, key, since, fields)
SELECT {pipeline}, {stream}, {key}, coalesce(w.since, now()), jsonb_build_object(
    'scalars', jsonb_strip_nulls(jsonb_object({names}::text[], ARRAY[{texts}]::text[])),
    'multi', {multi}
)
FROM penstock_work w
WHERE NOT w.alive AND {known}
