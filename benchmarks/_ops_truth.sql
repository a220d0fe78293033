-- What the backlog leads to: images, the sum of the sizes and views that were set last, tags, images with a title.
WITH read AS MATERIALIZED (
    SELECT id, (document ->> 'key')::bigint AS key, document -> 'ops' -> 0 AS op, document ->> 'creates' AS creates
    FROM penstock_outbox.outbox WHERE stream = 'images'
), created AS MATERIALIZED (
    SELECT DISTINCT key FROM read WHERE creates = 'true'
), last_set AS (
    SELECT DISTINCT ON (key, op ->> 'field') key, (op ->> 'value')::bigint AS value FROM read
    WHERE op ->> 'field' IN ('size', 'views') ORDER BY key, op ->> 'field', id DESC
), last_tag AS (
    SELECT DISTINCT ON (key, op ->> 'value') key, op ->> 'op' AS op FROM read
    WHERE op ->> 'field' = 'tags' ORDER BY key, op ->> 'value', id DESC
)
SELECT (SELECT count(*) FROM created),
       (SELECT sum(value) FROM last_set JOIN created USING (key)),
       (SELECT count(*) FROM last_tag JOIN created USING (key) WHERE op = 'add'),
       (SELECT count(*) FROM created WHERE key % 100 IN (
            SELECT (op -> 'where' ->> 'eq')::bigint FROM read WHERE op ->> 'op' = 'query_op_set'))
