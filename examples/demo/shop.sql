-- A small shop: 2,000 customers, 60,000 orders, 300 products. `updated_at` is kept by triggers.
CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    city text,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    status text NOT NULL,
    amount numeric(12, 2) NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE products (sku text PRIMARY KEY, title text NOT NULL, price numeric(10, 2) NOT NULL);

-- What every keyset stream needs: an index in the order in which it is read.
CREATE INDEX ON customers (updated_at, id);
CREATE INDEX ON orders (updated_at, id);

-- Many rows with one `updated_at`, as an import in one transaction leaves them: 20,000 orders for each of three moments.
INSERT INTO customers (name, city, updated_at)
SELECT 'customer ' || n, (ARRAY['Lyon', 'Porto', 'Gent', NULL])[n % 4 + 1], now() - interval '3 days'
FROM generate_series(1, 2000) n;
INSERT INTO orders (customer_id, status, amount, updated_at)
SELECT n % 2000 + 1, 'new', n % 9973 / 100.0, now() - (3 - n / 20001) * interval '1 day'
FROM generate_series(1, 60000) n;
INSERT INTO products SELECT 'sku-' || n, 'product ' || n, n FROM generate_series(1, 300) n;

CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON customers FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION touch();
