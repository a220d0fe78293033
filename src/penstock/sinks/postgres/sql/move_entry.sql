UPDATE {schema}.ledger
SET number = %(number)s, id = %(id)s, previous = %(previous)s, kind = %(kind)s, after = %(after)s,
    upto = %(upto)s, content = %(content)s, spool = %(spool)s,
    rows = %(rows)s, bytes = %(bytes)s, outcome = NULL, at = now()
WHERE pipeline = %(pipeline)s AND stream = %(stream)s AND id = %(previous)s
