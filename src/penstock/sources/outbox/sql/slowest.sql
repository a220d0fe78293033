-- The consumer of a stream, other than this one, whose first document that it has not certainly read is oldest.
SELECT c.pipeline, extract(epoch FROM clock_timestamp() - first.created_at)::float8
FROM {consumers} c CROSS JOIN LATERAL (
    SELECT o.created_at FROM {outbox} o WHERE o.stream = c.stream AND o.id > c.low ORDER BY o.id LIMIT 1
) first
WHERE c.stream = {stream} AND c.pipeline <> {pipeline}
AND first.created_at < clock_timestamp() - make_interval(secs => {seconds})
ORDER BY first.created_at LIMIT 1
