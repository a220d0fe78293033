-- The tables that feed an image; the backlog is written beside their triggers, so they stay empty.
CREATE TABLE posts (id bigint PRIMARY KEY, title text);
CREATE TABLE images (id bigint PRIMARY KEY, url text, post_id bigint, size bigint, views bigint);
CREATE TABLE image_tags (image_id bigint, tag_id bigint, PRIMARY KEY (image_id, tag_id));
