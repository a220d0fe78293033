CASE jsonb_typeof({0})
    WHEN 'string' THEN true WHEN 'boolean' THEN true
    WHEN 'number' THEN CASE WHEN {0} #>> '{{}}' ~ '^-?[0-9]{{1,18}}$' THEN true
        WHEN {0} #>> '{{}}' ~ '^-?[0-9]{{19}}$'
        THEN ({0} #>> '{{}}')::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
        ELSE false END
    ELSE false END
