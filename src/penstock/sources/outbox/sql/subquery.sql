coalesce((
SELECT {ops} FROM (
{subquery}
) AS q LIMIT 1
), {nulls})
