-- A small shop. How many orders it begins with is said beforehand: SET demo.orders = …
CREATE TYPE order_status AS ENUM ('new', 'paid', 'sent', 'returned');

CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    city text,
    likes jsonb NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL
);
CREATE TABLE products (sku text PRIMARY KEY, title text NOT NULL, price numeric(10, 2) NOT NULL);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    status order_status NOT NULL DEFAULT 'new',
    amount numeric(12, 2) NOT NULL,
    gift boolean NOT NULL DEFAULT false,
    placed_on date NOT NULL DEFAULT current_date,
    updated_at timestamptz NOT NULL
);
-- These two are only ever added to: their own number is the cursor.
CREATE TABLE order_lines (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id bigint NOT NULL REFERENCES orders,
    sku text NOT NULL REFERENCES products,
    quantity integer NOT NULL
);
CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    happened_at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    payload jsonb NOT NULL
);

-- Many rows of one moment, as an import in one transaction leaves them: every order is of one of three days.
INSERT INTO customers (name, city, likes, updated_at)
SELECT 'customer ' || n, (ARRAY['Lyon', 'Porto', 'Gent', NULL])[n % 4 + 1],
       jsonb_build_object('colour', (ARRAY['red', 'blue'])[n % 2 + 1], 'size', n % 40), now() - interval '3 days'
FROM generate_series(1, greatest(current_setting('demo.orders')::int / 20, 10)) n;

INSERT INTO products SELECT 'sku-' || n, 'product ' || n, n + n % 7 / 10.0 FROM generate_series(1, 300) n;

INSERT INTO orders (customer_id, status, amount, gift, placed_on, updated_at)
SELECT n % (SELECT count(*) FROM customers) + 1, (ARRAY['new', 'paid', 'sent']::order_status[])[n % 3 + 1],
       n % 9973 / 100.0, n % 11 = 0, current_date - n % 400,
       now() - (3 - n * 3 / (current_setting('demo.orders')::int + 1)) * interval '1 day'
FROM generate_series(1, current_setting('demo.orders')::int) n;

INSERT INTO order_lines (order_id, sku, quantity)
SELECT n / 2 + 1, 'sku-' || n % 300 + 1, n % 5 + 1
FROM generate_series(0, 2 * current_setting('demo.orders')::int - 1) n;

INSERT INTO events (happened_at, kind, payload)
SELECT now() - n * interval '1 second', (ARRAY['view', 'search', 'basket'])[n % 3 + 1],
       jsonb_build_object('page', n % 97, 'from', 'demo')
FROM generate_series(1, current_setting('demo.orders')::int * 3 / 4) n;

-- From here on the server keeps `updated_at`: whoever changes a row cannot forget it.
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON customers FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION touch();

-- What a stream needs that is read by its cursor: an index in that order.
CREATE INDEX ON customers (updated_at, id);
CREATE INDEX ON orders (updated_at, id);
ANALYZE;
