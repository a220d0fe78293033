WITH head AS (
    UPDATE {schema}.ledger
    SET outcome = %(outcome)s, target = %(target)s, table_oid = to_regclass(%(target)s),
        refreshed = refreshed OR kind = 'refresh'
    WHERE pipeline = %(pipeline)s AND stream = %(stream)s
    RETURNING *
)
INSERT INTO {schema}.slices (pipeline, stream, number, id, previous, kind, attempt, rows, bytes, outcome)
SELECT pipeline, stream, number, id, previous, kind, %(attempt)s, rows, bytes, outcome FROM head
