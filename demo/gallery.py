"""The act of the state table: a delete and a fan-out arrive in it. Its pipeline and tables are those of the example."""

from __future__ import annotations

from typing import Any

import psycopg
from tests.harness.postgres import LocalServer

from demo.folder import HERE, Folder
from demo.stage import Stage, short_path

EXAMPLE = HERE.parent / "examples" / "gallery"
DATABASE = "gallery"
PIPELINE = "images-to-postgres"
STATE = "SELECT id, url, post_title, version, model, tags, tools FROM gallery.images ORDER BY 1"
TITLES = "SELECT string_agg(id || ' ' || model, ', ' ORDER BY id) FROM gallery.images"
#: of `changes.sql`, what the act is about
DELETE, FAN_OUT = "DELETE FROM images WHERE id = 3", "UPDATE models SET name = 'Aurora XL' WHERE id = 1"


class Gallery:
    """The gallery's database, and the folder of its pipeline."""

    def __init__(self, folder: Folder, server: LocalServer, stage: Stage) -> None:
        folder.gallery.mkdir()
        file = folder.gallery / "gallery.yaml"
        file.write_text((EXAMPLE / file.name).read_text())
        server.drop(DATABASE)
        self.url, self.stage, self.file = server.create(DATABASE), stage, short_path(file)
        stage.environment |= {"DATABASE_URL": self.url, "STORE_URL": self.url}
        self.execute((EXAMPLE / "tables.sql").read_text(), "CREATE SCHEMA gallery")

    def apply_triggers(self) -> None:
        self.stage.penstock("triggers", "apply", self.file, "--pipeline", PIPELINE, last_lines=1)

    def run(self) -> str:
        """Run the pipeline; the model of each image afterwards."""
        self.stage.penstock("run", self.file, PIPELINE, last_lines=1)
        return str(self.rows(TITLES)[0][0])

    def agrees(self) -> bool:
        """Whether the state table is what the six tables say."""
        return self.rows(STATE) == self.rows((HERE / "gallery.sql").read_text())

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()
