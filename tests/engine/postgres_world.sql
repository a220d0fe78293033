-- The stream's table and the ledger, with what lets a test see more: the transaction that wrote a row last, and the
-- marks of every slice that the ledger has ever held.
CREATE TABLE IF NOT EXISTS {schema}.marks (id text PRIMARY KEY, after text, upto text);
CREATE OR REPLACE FUNCTION {schema}.remembered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.marks VALUES (NEW.id, NEW.after, NEW.upto) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER remembered AFTER INSERT OR UPDATE ON {schema}.ledger
FOR EACH ROW EXECUTE FUNCTION {schema}.remembered();

CREATE TABLE {table} (place bigint, key bigint{primary}, version bigint, born text);
CREATE OR REPLACE FUNCTION {schema}.stamped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.born := (pg_catalog.pg_current_xact_id()::xid)::text;
    RETURN NEW;
END $$;
CREATE TRIGGER stamped BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {schema}.stamped()
