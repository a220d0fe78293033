"""The world with the real files sink in it: what readers of a folder see."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from typing import Any

from penstock.ports import Context, Probe
from penstock.sinks.files import FilesSink, Options, build
from tests.engine.world import PIPELINE, STREAM, Return, World, Wrong

_NUMBER = re.compile(r"^(\d{8})-")


@dataclass
class FilesWorld(World):
    """One folder."""

    seen: frozenset[str] = frozenset()
    copies: int = 0
    #: files that someone removed
    removed: set[str] = field(default_factory=set)

    @property
    def out(self) -> str:
        return os.path.join(self.folder, "out")

    def sink(self, probe: Probe) -> FilesSink:
        return build(Options(directory=self.out, format="ndjson"), {}, Context(PIPELINE, self.folder, probe))

    def copy_sink(self) -> object:
        self.copies += 1
        copy = os.path.join(self.folder, f"copy{self.copies}")
        if os.path.isdir(self.out):
            shutil.copytree(self.out, copy, symlinks=True)
        return copy

    def restore_sink(self, copy: object) -> None:
        assert isinstance(copy, str)
        shutil.rmtree(self.out, ignore_errors=True)
        if os.path.isdir(copy):
            shutil.copytree(copy, self.out, symlinks=True)
        self.tampered_sink = True
        self.seen = self.visible_files()

    def delete(self, name: str) -> None:
        """Someone removes a file. An old one is theirs to remove; one of the last two slices stops the stream."""
        before = self.delivered()
        self.remove_file(name)
        self.tampered_sink = True
        self.seen = self.visible_files()
        self.deleted |= set(before) - set(self.delivered())
        self.removed.add(name)

    def remove_file(self, name: str) -> None:
        os.unlink(os.path.join(self.out, STREAM, name))

    # ------------------------------------------------------------ what readers see

    def visible_files(self) -> frozenset[str]:
        data = os.path.join(self.out, STREAM)
        return frozenset(os.listdir(data)) if os.path.isdir(data) else frozenset()

    def manifests(self) -> dict[int, dict[str, object]]:
        folder = os.path.join(self.out, "_penstock", PIPELINE, STREAM, "manifests")
        found = {}
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if not name.startswith("."):
                with open(os.path.join(folder, name)) as file:
                    document = json.load(file)
                found[document["number"]] = document
        return found

    def returns(self) -> list[Return]:
        found: list[Return] = []
        for number, manifest in sorted(self.manifests().items()):
            if manifest["kind"] in ("reset", "rewind", "undo"):
                after, upto = (_place(manifest[bound]) for bound in ("after", "upto"))
                found.append(Return(number, after, upto))
        return found

    def delivered(self) -> list[tuple[int, int]]:
        returns = self.returns()
        rows = []
        for name in self.visible_files():
            match = _NUMBER.match(name)
            assert match, name
            generation = sum(each.number < int(match.group(1)) for each in returns)
            rows += [(generation, place) for place in self.places(name)]
        return rows

    def places(self, name: str) -> list[int]:
        """The rows of a visible file."""
        with open(os.path.join(self.out, STREAM, name), "rb") as file:
            return [place_of(line) for line in file]

    def look_anew(self) -> None:
        self.seen = self.visible_files()

    def check_seen(self) -> None:
        files = self.visible_files()
        if not self.seen <= files:
            raise Wrong(f"vanished: {sorted(self.seen - files)}")
        if files != self.seen or self.processes == []:
            self.check_generations(self.delivered())
        self.seen = files

    def check_whole(self) -> None:
        named = {os.path.basename(f["name"]) for m in self.manifests().values() for f in m["files"]}  # type: ignore[attr-defined]
        differ = (named ^ self.visible_files()) - self.removed
        if differ:
            raise Wrong(f"partial: named and visible files differ: {sorted(differ)}")


def _place(mark: Any) -> int:
    return int(json.loads(mark)["place"]) if mark else 0


def place_of(line: bytes) -> int:
    """The place of a row."""
    return int(json.loads(line)["place"])
