-- What the writers of the soak write. Of every way to be incremental one table.

CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- a trigger stamps every insert and update with the start of its transaction
CREATE TABLE stamped (
    id bigint PRIMARY KEY,
    writer int NOT NULL,
    changes int NOT NULL DEFAULT 0,
    amount numeric(12, 2),
    note text,
    updated_at timestamptz NOT NULL
);
CREATE INDEX ON stamped (updated_at, id);
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON stamped FOR EACH ROW EXECUTE FUNCTION stamp();

-- a default stamps inserts; nobody updates
CREATE TABLE defaulted (
    id bigint PRIMARY KEY,
    writer int NOT NULL,
    note text,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON defaulted (updated_at, id);

-- a sequence numbers inserts; nobody updates
CREATE TABLE numbered (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    writer int NOT NULL,
    note text
);

-- the same in partitions: whoever inserts locks the whole and a leaf
CREATE TABLE parted (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    writer int NOT NULL,
    note text
) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES WITH (MODULUS 3, REMAINDER 2);

-- several transactions in one statement; each has a start of its own
CREATE PROCEDURE trickle(writer int, first bigint, count int, seconds float) LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 0 .. count - 1 LOOP
        INSERT INTO stamped (id, writer, note) VALUES (first + n, writer, 'trickled');
        INSERT INTO defaulted (id, writer, note) VALUES (first + n, writer, 'trickled');
        PERFORM pg_sleep(seconds / count);
        INSERT INTO numbered (writer, note) VALUES (writer, 'trickled');
        INSERT INTO parted (writer, note) VALUES (writer, 'trickled');
        COMMIT;
    END LOOP;
END $$;

-- what is there before the first run
INSERT INTO stamped (id, writer, amount, note)
SELECT g, 0, g * 0.01, 'before ' || md5(g::text) FROM generate_series(1, 2000) g;
INSERT INTO defaulted (id, writer, note) SELECT g, 0, 'before ' || md5(g::text) FROM generate_series(1, 2000) g;
INSERT INTO numbered (writer, note) SELECT 0, 'before ' || md5(g::text) FROM generate_series(1, 2000) g;
INSERT INTO parted (writer, note) SELECT 0, 'before ' || md5(g::text) FROM generate_series(1, 2000) g;
ANALYZE;
