-- One batch of documents that all consumers of a stream have read, and that are old enough; the floor moves with them.
WITH candidates AS (
    SELECT o.id, bool_and(o.created_at < clock_timestamp() - make_interval(secs => {seconds})) OVER (ORDER BY o.id) AS old
    FROM {outbox} o
    WHERE o.stream = {stream} AND o.id > {floor}
    AND o.id <= (SELECT min(c.low) FROM {consumers} c WHERE c.stream = {stream})
    ORDER BY o.id LIMIT {most}
), deleted AS (
    DELETE FROM {outbox} o USING candidates c WHERE o.stream = {stream} AND o.id = c.id AND c.old RETURNING o.id
)
UPDATE {floors} f SET low = d.last FROM (SELECT max(id) AS last, count(*) AS count FROM deleted) d
WHERE f.stream = {stream} AND d.last IS NOT NULL
RETURNING d.count
