INSERT INTO {schema}.ledger (pipeline, stream, target, number, id, previous, kind, after, upto, content, spool,
                             rows, bytes)
VALUES (%(pipeline)s, %(stream)s, %(target)s, %(number)s, %(id)s, %(previous)s, %(kind)s, %(after)s, %(upto)s,
        %(content)s, %(spool)s, %(rows)s, %(bytes)s)
ON CONFLICT (pipeline, stream) DO NOTHING
