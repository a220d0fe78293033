-- A delete, a change of one tag, names that belong to several images, and an image that moves to another post.
DELETE FROM images WHERE id = 3;
DELETE FROM image_tags WHERE image_id = 2 AND tag = 'water';
INSERT INTO image_tags VALUES (2, 'calm');
UPDATE posts SET title = 'Early morning' WHERE id = 100;
UPDATE models SET name = 'Aurora XL' WHERE id = 1;
UPDATE images SET post_id = 101 WHERE id = 2;
