-- Of the documents of a window, in order: the ids at which parts end, and that of a full slice; each with its number.
SELECT id, n
FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS n, lead(id) OVER (ORDER BY id) IS NULL AS last
    FROM (SELECT id FROM {outbox} AS o WHERE {window} ORDER BY id LIMIT {most}) AS first
) AS numbered
WHERE last OR n = {full} OR n % {step} = 0
ORDER BY n
