"""Tables of an imaginary application, the documents that their triggers would write, and the state that is true.

Images have a key, a post and a size; tags belong to an image; a post's title belongs to all its images.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.core.ops import FanOut, Record, Row, Shape, key_text, value_text

SHAPE = Shape(
    scalars=frozenset({"post", "size", "title"}),
    multi=frozenset({"tags"}),
    fan_outs=(FanOut("posts", ("post",), ("title",)),),
)

Document = dict[str, Any]


@dataclass
class Tables:
    random: Random
    #: id: post, size
    images: dict[int, list[int | None]] = field(default_factory=dict)
    tags: set[tuple[int, str]] = field(default_factory=set)
    posts: dict[int, str] = field(default_factory=dict)
    #: posts that have existed since the last truncation
    known: set[int] = field(default_factory=set)
    documents: list[Document] = field(default_factory=list)

    def change(self) -> None:
        """Make a random change, with its documents in the order in which triggers write them."""
        kinds = {self._new_image: 6, self._change_image: 5, self._tag: 6, self._post: 5, self._drop_image: 3}
        kinds |= {self._new_key: 2, self._truncate: 1}
        chosen = self.random.choices(list(kinds), list(kinds.values()))[0]
        chosen()

    @property
    def rows(self) -> list[Row]:
        return [Row(number, document) for number, document in enumerate(self.documents)]

    @property
    def truth(self) -> dict[str, Record]:
        found = {}
        for key, (post, size) in self.images.items():
            title = self.posts.get(post) if post is not None else None
            scalars = {"post": post, "size": size, "title": title}
            tags = frozenset(value_text(tag) for image, tag in self.tags if image == key)
            found[key_text(key)] = Record(
                {name: value for name, value in scalars.items() if value is not None}, {"tags": tags} if tags else {}
            )
        return found

    def _write(self, table: str, *ops: Document, key: int | None = None, creates: bool = False) -> None:
        document: Document = {"v": 1, "table": table, "ops": list(ops)}
        if key is not None:
            document["key"] = key
        if creates:
            document["creates"] = True
        self.documents.append(document)

    def _title_seen(self, post: int | None) -> Document:
        """The title that a trigger's subquery reads: an older one, if the post's change is not committed yet."""
        titles = [None, "old"] if post in self.known else [None]
        return {"op": "set", "field": "title", "value": self.random.choice(titles)}

    def _create(self, key: int) -> None:
        post, size = self.images[key]
        ops: list[Document] = [
            {"op": "set", "field": "post", "value": post},
            {"op": "set", "field": "size", "value": size},
        ]
        if self.random.random() < 0.5:  # a new entity's fields are null already
            ops = [op for op in ops if op["value"] is not None]
        if self.random.random() < 0.5:
            ops.append(self._title_seen(post))
        self._write("images", *ops, key=key, creates=True)

    def _new_image(self) -> None:
        free = [key for key in range(5) if key not in self.images]
        if not free:
            return
        key = self.random.choice(free)
        self.images[key] = [self.random.choice([None, 0, 1, 2]), self.random.randint(0, 9)]
        early = self.random.random() < 0.4
        if early:  # a deferred foreign key
            self._add_tag(key)
        self._create(key)

    def _change_image(self) -> None:
        if not self.images:
            return
        key = self.random.choice(sorted(self.images))
        if self.random.random() < 0.5:
            self.images[key][1] = self.random.choice([None, 7, 8])
            self._write("images", {"op": "set", "field": "size", "value": self.images[key][1]}, key=key)
        else:
            post = self.images[key][0] = self.random.choice([None, 0, 1, 2])
            ops = [{"op": "remove", "field": "post"} if post is None else {"op": "set", "field": "post", "value": post}]
            self._write("images", *ops, key=key)

    def _add_tag(self, key: int) -> None:
        tag = self.random.choice("xyz")
        self.tags.add((key, tag))
        self._write("tags", {"op": "add", "field": "tags", "value": tag}, key=key)

    def _remove_tag(self, key: int, tag: str) -> None:
        self.tags.discard((key, tag))
        self._write("tags", {"op": "remove", "field": "tags", "value": tag}, key=key)

    def _tag(self) -> None:
        if self.tags and self.random.random() < 0.4:
            self._remove_tag(*self.random.choice(sorted(self.tags)))
        elif self.images:
            self._add_tag(self.random.choice(sorted(self.images)))

    def _post(self) -> None:
        post = self.random.randrange(3)
        self.known.add(post)
        if post in self.posts and self.random.random() < 0.3:
            del self.posts[post]
            op: Document = {"op": "remove", "field": "title"}
        else:
            self.posts[post] = self.random.choice("abcdef")
            op = {"op": "set", "field": "title", "value": self.posts[post]}
        where = self.random.choice([{"field": "post", "eq": post}, {"and": [{"field": "post", "in": [post]}]}])
        self._write("posts", {"op": "query_op_set", "where": where, "ops": [op]})

    def _drop_image(self) -> None:
        if not self.images:
            return
        key = self.random.choice(sorted(self.images))
        del self.images[key]
        cascade = [tag for image, tag in sorted(self.tags) if image == key]
        first = self.random.random() < 0.5
        if first:
            self._write("images", {"op": "delete"}, key=key)
        for tag in cascade:
            self._remove_tag(key, tag)
        if not first:
            self._write("images", {"op": "delete"}, key=key)

    def _new_key(self) -> None:
        """A key change: the foreign key moves the tags first, in a statement of its own."""
        free = [key for key in range(5) if key not in self.images]
        if not free or not self.images:
            return
        old, new = self.random.choice(sorted(self.images)), self.random.choice(free)
        for image, tag in sorted(self.tags):
            if image == old:
                self._remove_tag(old, tag)
                self.tags.add((new, tag))
                self._write("tags", {"op": "add", "field": "tags", "value": tag}, key=new)
        self.images[new] = self.images.pop(old)
        self._write("images", {"op": "delete"}, key=old)
        self._create(new)

    def _truncate(self) -> None:
        chosen = self.random.choice(["images", "tags", "posts"])
        if chosen == "posts":
            self.posts.clear()
            self.known.clear()
            self._write("posts", {"op": "clear", "field": "title"})
            return
        self.tags.clear()
        self._write("tags", {"op": "clear", "field": "tags"})
        if chosen == "images":
            self.images.clear()
            self._write("images", {"op": "clear"})


def tables_after(random: Random, changes: int) -> Tables:
    tables = Tables(random)
    for _ in range(changes):
        tables.change()
    return tables
