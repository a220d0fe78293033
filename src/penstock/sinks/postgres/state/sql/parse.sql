-- A text as jsonb, or NULL. Used only if one of a slice's texts is not readable: each call is a subtransaction.
CREATE FUNCTION pg_temp.penstock_json(given text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN given::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex THEN
    RETURN NULL;
END $$
