-- A small shop. SET demo.orders chooses its number of orders beforehand.
CREATE TYPE order_status AS ENUM ('new', 'paid', 'sent', 'returned');

CREATE TABLE products (sku text PRIMARY KEY, title text NOT NULL, price numeric(10, 2) NOT NULL);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku text NOT NULL REFERENCES products,
    status order_status NOT NULL DEFAULT 'new',
    amount numeric(12, 2) NOT NULL,
    gift boolean NOT NULL DEFAULT false,
    placed_on date NOT NULL DEFAULT current_date,
    updated_at timestamptz NOT NULL
);
-- Rows are only added to this one: its id is the cursor.
CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    happened_at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    payload jsonb NOT NULL
);

INSERT INTO products SELECT 'sku-' || n, 'product ' || n, n + n % 7 / 10.0 FROM generate_series(1, 300) n;

-- Many rows have the same timestamp, as after an import in one transaction: each order is from one of three days.
INSERT INTO orders (sku, status, amount, gift, placed_on, updated_at)
SELECT 'sku-' || n % 300 + 1, (ARRAY['new', 'paid', 'sent']::order_status[])[n % 3 + 1],
       n % 9973 / 100.0, n % 11 = 0, current_date - n % 400,
       now() - (3 - n * 3 / (current_setting('demo.orders')::int + 1)) * interval '1 day'
FROM generate_series(1, current_setting('demo.orders')::int) n;

INSERT INTO events (happened_at, kind, payload)
SELECT now() - n * interval '1 second', (ARRAY['view', 'search', 'basket'])[n % 3 + 1],
       jsonb_build_object('page', n % 97, 'from', 'demo')
FROM generate_series(1, current_setting('demo.orders')::int * 3 / 4) n;

-- From here on a trigger sets `updated_at`, so no statement can forget it.
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION touch();

-- A stream that is read by its cursor needs an index in that order.
CREATE INDEX ON orders (updated_at, id);
ANALYZE;
