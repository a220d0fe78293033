-- The key of every `step`th row after a mark, at most `most` rows far, and how many rows are left behind the last one.
-- Step by step, because numbering the rows of a slice takes four times as long as walking over them; and with nothing
-- in the inner SELECT but the key, because it is evaluated for every row that is passed.
WITH RECURSIVE cuts ({names}, n) AS (
    SELECT x.*, {step}::bigint
    FROM (SELECT {key} FROM {table} AS t WHERE {whole} ORDER BY {key} OFFSET {step} - 1 LIMIT 1) x
    UNION ALL
    SELECT x.*, cuts.n + least({step}, {most} - cuts.n)
    FROM cuts CROSS JOIN LATERAL (
        SELECT {key} FROM {table} AS t WHERE {key_row} > {cut} AND {below}
        ORDER BY {key} OFFSET least({step}, {most} - cuts.n) - 1 LIMIT 1
    ) x
    WHERE cuts.n < {most}
), last AS (
    SELECT * FROM cuts ORDER BY n DESC LIMIT 1
)
SELECT n, {texts} FROM cuts
UNION ALL
SELECT (SELECT count(*) FROM (
            SELECT FROM {table} AS t WHERE {whole} AND NOT EXISTS (SELECT FROM cuts) LIMIT {step}) x)
     + (SELECT count(*) FROM last AS cuts CROSS JOIN LATERAL (
            SELECT FROM {table} AS t WHERE cuts.n < {most} AND {key_row} > {cut} AND {below} LIMIT {step}) x),
       {nothing}
