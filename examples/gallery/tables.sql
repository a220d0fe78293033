-- Six tables of a picture gallery: an image, what belongs to it, and what it refers to.
CREATE TABLE models (id bigint PRIMARY KEY, name text NOT NULL);
CREATE TABLE versions (id bigint PRIMARY KEY, name text NOT NULL);
CREATE TABLE posts (id bigint PRIMARY KEY, title text);
CREATE TABLE images (
    id bigint PRIMARY KEY,
    post_id bigint REFERENCES posts,
    model_id bigint REFERENCES models,
    version_id bigint REFERENCES versions,
    url text NOT NULL
);
CREATE TABLE image_tags (image_id bigint REFERENCES images ON DELETE CASCADE, tag text, PRIMARY KEY (image_id, tag));
CREATE TABLE image_tools (image_id bigint REFERENCES images ON DELETE CASCADE, tool text, PRIMARY KEY (image_id, tool));

INSERT INTO models VALUES (1, 'Aurora'), (2, 'Basalt');
INSERT INTO versions VALUES (10, '1.0'), (11, '1.5'), (20, 'beta');
INSERT INTO posts VALUES (100, 'Morning'), (101, 'Evening');
INSERT INTO images VALUES (1, 100, 1, 10, 'fog.png'), (2, 100, 1, 11, 'lake.png'), (3, 101, 2, 20, 'dusk.png');
INSERT INTO image_tags VALUES (1, 'grey'), (2, 'blue'), (2, 'water'), (3, 'red');
INSERT INTO image_tools VALUES (1, 'brush'), (2, 'brush'), (2, 'mask');
