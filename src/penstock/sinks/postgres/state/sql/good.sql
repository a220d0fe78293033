CASE WHEN jsonb_typeof(d.doc) = 'object' AND jsonb_typeof(d.doc -> 'ops') = 'array' THEN
    d.doc -> 'v' = '1' AND d.doc ->> 'v' = '1'
    AND d.doc - '{{v,table,key,creates,ops}}'::text[] = '{{}}'
    AND jsonb_typeof(d.doc -> 'table') = 'string' AND d.doc ->> 'table' <> ''
    AND (NOT d.doc ? 'creates' OR jsonb_typeof(d.doc -> 'creates') = 'boolean')
    AND (jsonb_array_length(d.doc -> 'ops') > 0 OR d.doc -> 'creates' = 'true')
    AND CASE WHEN d.doc ? 'key' THEN
        {key}
        AND (NOT d.doc -> 'ops' @> '[{{"op": "delete"}}]'
             OR (d.doc -> 'ops' = '[{{"op": "delete"}}]' AND d.doc -> 'creates' IS DISTINCT FROM 'true'))
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(d.doc -> 'ops') o WHERE (
                CASE o ->> 'op'
                WHEN 'set' THEN jsonb_typeof(o -> 'field') = 'string' AND o ->> 'field' = ANY ({scalars})
                    AND o ? 'value' AND o - '{{op,field,value,old}}'::text[] = '{{}}'
                WHEN 'remove' THEN jsonb_typeof(o -> 'field') = 'string'
                    AND o - '{{op,field,value,old}}'::text[] = '{{}}'
                    AND CASE WHEN o ? 'value' THEN o ->> 'field' = ANY ({multi}) AND {value}
                        ELSE o ->> 'field' = ANY ({scalars}) END
                WHEN 'add' THEN jsonb_typeof(o -> 'field') = 'string' AND o ->> 'field' = ANY ({multi})
                    AND o - '{{op,field,value}}'::text[] = '{{}}' AND {value}
                WHEN 'delete' THEN o = '{{"op": "delete"}}'
                ELSE false END
            ) IS NOT TRUE
        )
    ELSE d.doc -> 'creates' IS DISTINCT FROM 'true'
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(d.doc -> 'ops') o WHERE (
                CASE o ->> 'op'
                WHEN 'clear' THEN o = '{{"op": "clear"}}' OR (jsonb_typeof(o -> 'field') = 'string'
                    AND o ->> 'field' = ANY ({scalars} || {multi}) AND o - '{{op,field}}'::text[] = '{{}}')
                WHEN 'query_op_set' THEN {fan_out}
                ELSE false END
            ) IS NOT TRUE
        )
    END
END
