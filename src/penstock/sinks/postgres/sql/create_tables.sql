-- The chain of every stream that is written to this database, and all committed slices.
-- `target` and `table_oid`: the table that the rows went into; `refreshed`: a full refresh has replaced its rows.
CREATE TABLE IF NOT EXISTS {schema}.ledger (
    pipeline text NOT NULL,
    stream text NOT NULL,
    target text NOT NULL,
    table_oid oid,
    refreshed boolean NOT NULL DEFAULT false,
    number bigint NOT NULL,
    id text NOT NULL,
    previous text NOT NULL,
    kind text NOT NULL,
    after text,
    upto text,
    content text NOT NULL,
    spool text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    outcome jsonb,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, stream)
);
CREATE TABLE IF NOT EXISTS {schema}.slices (
    pipeline text NOT NULL,
    stream text NOT NULL,
    number bigint NOT NULL,
    id text NOT NULL,
    previous text NOT NULL,
    kind text NOT NULL,
    attempt text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    outcome jsonb,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, stream, number)
);
COMMENT ON TABLE {schema}.ledger IS 'penstock: the last slice of each stream; written in one transaction with its rows';
COMMENT ON TABLE {schema}.slices IS 'penstock: every committed slice';
CREATE TABLE IF NOT EXISTS {schema}.quarantine (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline text NOT NULL,
    stream text NOT NULL,
    number bigint NOT NULL,
    target text NOT NULL,
    key json NOT NULL,
    row json NOT NULL,
    columns json NOT NULL,
    code text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS quarantine_stream ON {schema}.quarantine (pipeline, stream, id);
COMMENT ON TABLE {schema}.quarantine IS
    'penstock: rows that a table rejected, as they came; see penstock quarantine --help';
