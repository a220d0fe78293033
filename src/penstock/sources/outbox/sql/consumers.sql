-- Each consumer: documents that it has not certainly read (up to a limit), and how old its registration is.
SELECT c.pipeline, c.stream, c.number, c.low,
       (SELECT count(*) FROM (SELECT FROM {outbox} o WHERE o.stream = c.stream AND o.id > c.low LIMIT {most}) x),
       extract(epoch FROM clock_timestamp() - c.updated_at)::float8
FROM {consumers} c ORDER BY c.pipeline, c.stream
