-- A backlog as triggers write it: of every five ops two create an image, two change it, and one adds or removes a tag.
-- Updates of one image are not collapsed. Every {apart} documents a post's title changes: a hundredth of all images.
INSERT INTO penstock_outbox.outbox (stream, document)
SELECT 'images', CASE
    WHEN d.n % {apart} = {apart} / 2 THEN jsonb_build_object(
        'v', 1, 'table', 'public.posts', 'ops', jsonb_build_array(jsonb_build_object(
            'op', 'query_op_set', 'where', jsonb_build_object('field', 'post_id', 'eq', d.n / {apart} % 100),
            'ops', jsonb_build_array(jsonb_build_object('op', 'set', 'field', 'title', 'value', 'title ' || d.n)))))
    WHEN d.n < {entities} THEN jsonb_build_object(
        'v', 1, 'table', 'public.images', 'key', d.n, 'creates', true, 'ops', jsonb_build_array(
            jsonb_build_object('op', 'set', 'field', 'url', 'value', 'https://images.example/' || d.n || '.png'),
            jsonb_build_object('op', 'set', 'field', 'post_id', 'value', d.n % 100)))
    WHEN d.n % 3 = 0 THEN jsonb_build_object(
        'v', 1, 'table', 'public.image_tags', 'key', d.picked, 'ops', jsonb_build_array(jsonb_build_object(
            'op', CASE WHEN d.n % 4 = 0 THEN 'remove' ELSE 'add' END, 'field', 'tags', 'value', d.n / 12 % 20)))
    ELSE jsonb_build_object(
        'v', 1, 'table', 'public.images', 'key', d.picked, 'ops', jsonb_build_array(jsonb_build_object(
            'op', 'set', 'field', CASE WHEN d.n % 3 = 1 THEN 'size' ELSE 'views' END, 'value', d.n)))
    END
FROM (
    SELECT n, n * 7919 % {entities} AS picked FROM generate_series(0::bigint, {documents} - 1) n
) d
ORDER BY d.n
