-- The ops of one declared fan-out, a row for each match.
INSERT INTO penstock_fans
SELECT s.seq, {seg}, s.fan_out, ARRAY[{match}]::text[], v.fields
FROM penstock_streams s
JOIN (
    SELECT p.seq, jsonb_object_agg(f.name, p.value ORDER BY p.inner_n) AS fields
    FROM penstock_pieces p JOIN unnest({names}::text[], {numbers}::integer[]) f (name, number) ON f.number = p.field
    WHERE p.inner_n > 0
    GROUP BY p.seq
) v ON v.seq = s.seq
{joins}
WHERE s.fan_out = {number}
