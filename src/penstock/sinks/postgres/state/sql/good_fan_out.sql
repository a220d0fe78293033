o - '{{op,where,ops}}'::text[] = '{{}}'
    AND jsonb_typeof(o -> 'where') = 'object' AND jsonb_typeof(o -> 'ops') = 'array'
    AND CASE WHEN jsonb_typeof(o -> 'where') = 'object' THEN (o -> 'where') - '{{field,eq}}'::text[] = '{{}}' END
    AND o -> 'where' -> 'field' = {match} AND {value}
    AND CASE WHEN jsonb_typeof(o -> 'ops') = 'array' THEN
        jsonb_array_length(o -> 'ops') > 0
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(o -> 'ops') i WHERE (
                jsonb_typeof(i -> 'field') = 'string' AND i ->> 'field' = ANY ({fields})
                AND CASE i ->> 'op'
                WHEN 'set' THEN i ? 'value' AND i - '{{op,field,value,old}}'::text[] = '{{}}'
                WHEN 'remove' THEN i - '{{op,field,old}}'::text[] = '{{}}'
                ELSE false END
            ) IS NOT TRUE
        ) END
