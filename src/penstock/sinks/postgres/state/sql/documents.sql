-- The documents of a slice in their order. `good`: valid and understood, by a test that may doubt but never errs; the
-- others are judged one by one.
CREATE TEMPORARY TABLE penstock_documents ON COMMIT DROP AS
SELECT d.*, ({good}) IS TRUE AS good
FROM (
    SELECT n.first + (x.{place} & 4294967295) AS pos, x.{place} AS place, x.id, x.at, {document} AS doc
    FROM {staging} x JOIN (VALUES {parts}) n (attempt, first) ON x.{place} >> 32 = n.attempt
    -- Keeps the server from parsing a document again wherever the test names it.
    OFFSET 0
) d
