-- A table that is loaded while others change it. What is deleted is kept in `gone`.

CREATE TABLE items (
    id bigint PRIMARY KEY,
    changes int NOT NULL DEFAULT 0,
    amount numeric(12, 2),
    body text NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE TABLE gone (id bigint NOT NULL);
CREATE SEQUENCE item_ids;

INSERT INTO items
SELECT nextval('item_ids'), 0, g * 0.01, repeat(md5(g::text), 3), now() - (g % 1000) * interval '1 hour'
FROM generate_series(1, {rows}) g;

CREATE INDEX ON items (updated_at, id);
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END $$;
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION stamp();
ANALYZE items;
