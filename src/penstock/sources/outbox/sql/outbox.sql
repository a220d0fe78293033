-- The outbox and what stands beside it. Each statement may be run again.
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.outbox (
    -- The order of documents that change one entity: a document gets its id while the row is locked.
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    -- The transaction that wrote the document: whether a snapshot sees it.
    xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    stream text NOT NULL,
    document jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (stream, id)
);
-- One row: tells this outbox from one that is made later under its name.
CREATE TABLE IF NOT EXISTS {schema}.identity (
    token text NOT NULL,
    format int NOT NULL,
    one bool PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO {schema}.identity (token, format) VALUES (pg_catalog.gen_random_uuid()::text, {format})
ON CONFLICT DO NOTHING;
-- Who reads a stream: documents that all of its consumers have read may be deleted.
CREATE TABLE IF NOT EXISTS {schema}.consumers (
    pipeline text NOT NULL,
    stream text NOT NULL,
    -- The number of the slice that the mark belongs to.
    number bigint NOT NULL,
    -- Every document with an id up to this one has been read.
    low bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (pipeline, stream)
);
-- By stream, the highest id that was deleted: a mark below it has missed documents.
CREATE TABLE IF NOT EXISTS {schema}.floors (
    stream text PRIMARY KEY,
    low bigint NOT NULL
);
-- Which pipeline uses which trigger function on which table.
CREATE TABLE IF NOT EXISTS {schema}.triggers (
    pipeline text NOT NULL,
    relation text NOT NULL,
    relation_oid oid NOT NULL,
    function text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (pipeline, relation)
);
-- What `penstock loads` was asked for; a load without a row is made once.
CREATE TABLE IF NOT EXISTS {schema}.loads (
    pipeline text NOT NULL,
    stream text NOT NULL,
    load text NOT NULL,
    -- With another time, what the table said before is void.
    since timestamptz,
    -- False: the load was dropped.
    wanted bool NOT NULL DEFAULT true,
    -- The stream waits for files. A dump that was begun after `horizon` shows all that `snapshot` sees.
    waits bool NOT NULL DEFAULT false,
    horizon timestamptz,
    snapshot text,
    -- Documents up to this id had been read, or deleted.
    low bigint,
    -- The declaration of the stream when it began to wait: with another one, the dump is void.
    declared text,
    -- Its files.
    dump jsonb,
    PRIMARY KEY (pipeline, stream, load)
);
CREATE OR REPLACE FUNCTION {schema}.refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $refuse$
BEGIN
RAISE EXCEPTION 'the outbox is not truncated: documents that no pipeline has read would be lost'
USING HINT = 'Runs of penstock delete what all pipelines have read; `penstock triggers drop` removes all of it.';
END
$refuse$;
DROP TRIGGER IF EXISTS refuse_truncate ON {schema}.outbox;
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON {schema}.outbox EXECUTE FUNCTION {schema}.refuse_truncate();
ALTER TABLE {schema}.outbox ENABLE ALWAYS TRIGGER refuse_truncate;
