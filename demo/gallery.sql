-- What the state table of the gallery must hold, from the six tables.
SELECT i.id, i.url, p.title, v.name, m.name,
       array(SELECT t.tag FROM image_tags t WHERE t.image_id = i.id ORDER BY 1),
       array(SELECT t.tool FROM image_tools t WHERE t.image_id = i.id ORDER BY 1)
FROM images i LEFT JOIN posts p ON p.id = i.post_id LEFT JOIN versions v ON v.id = i.version_id
LEFT JOIN models m ON m.id = i.model_id
ORDER BY 1
