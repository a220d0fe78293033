"""Mistakes one could make in the gate or the files sink, each made on purpose in the real code.

The names are those of `gate_model.py`; the state machine must catch every one of them.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from penstock.core.outcome import Delivered
from penstock.core.slices import Kind, Verdict
from penstock.engine import gate as gate_module
from penstock.engine import look as look_module
from penstock.engine import undoing
from penstock.engine.gate import Gate
from penstock.engine.run import Engine
from penstock.errors import CommitUnclear
from penstock.ports import find_mark
from penstock.sinks.files import chain as chain_module
from penstock.sinks.files import writer as writer_module
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.layout import Layout
from penstock.sinks.files.sink import FilesSink
from tests.store.memory_store import MemoryStore

Mutant = Callable[[], AbstractContextManager[None]]
MUTANTS: dict[str, Mutant] = {}


Register = Callable[[Callable[[], Iterator[None]]], None]


def registering(mutants: dict[str, Mutant]) -> Callable[[str], Register]:
    """What puts a mistake among others, under its name."""

    def mutant(name: str) -> Register:
        def register(make: Callable[[], Iterator[None]]) -> None:
            mutants[name] = contextmanager(make)

        return register

    return mutant


mutant = registering(MUTANTS)


def patched(*patches: tuple[Any, str, Any]) -> ExitStack:
    stack = ExitStack()
    for where, name, value in patches:
        stack.enter_context(mock.patch.object(where, name, value))
    return stack


# ---------------------------------------------------------------- the files sink


@mutant("make visible before manifest")
def _() -> Iterator[None]:
    create = FilesSink._create

    def visible_first(self: FilesSink, chain: Chain, manifest: Any) -> None:
        chain.make_visible(manifest)
        create(self, chain, manifest)

    with patched((FilesSink, "_create", visible_first)):
        yield


@mutant("sweep at takeover")
def _() -> Iterator[None]:
    turn = Gate.turn

    def sweeping(self: Gate) -> Any:
        intent = self.store.state(self.pipeline, self.stream).intent
        if intent:
            sink: Any = self.sink
            staged = os.path.join(sink.root, Layout(self.pipeline, self.stream).staged)
            for folder in glob.glob(f"{staged}/{intent.number}.*"):
                shutil.rmtree(folder)
        return turn(self)

    with patched((Gate, "turn", sweeping)):
        yield


def _tidying(names: Callable[[FilesSink, Any, str, Any], list[str]]) -> Any:
    commit = FilesSink.commit

    def tidy(self: FilesSink, slice_: Any, attempt: str, receipts: Any) -> None:
        try:
            commit(self, slice_, attempt, receipts)
        except CommitUnclear:
            for path in names(self, slice_, attempt, receipts):
                if os.path.exists(path):
                    os.unlink(path)
            raise

    return tidy


def _aside(sink: FilesSink, slice_: Any, attempt: str, receipts: Any) -> list[str]:
    folder = os.path.join(sink.root, Layout(sink.pipeline, slice_.stream).attempt(slice_.number, attempt))
    return glob.glob(f"{folder}/*")


@mutant("delete what was put aside on an unknown outcome")
def _() -> Iterator[None]:
    with patched((FilesSink, "commit", _tidying(_aside))):
        yield


@mutant("names without the attempt")
def _() -> Iterator[None]:
    """And the loser tidies up under names that are not its own, as the model has it."""
    writer = FilesSink.writer

    def named(self: FilesSink, slice_: Any, attempt: str) -> Any:
        made = writer(self, slice_, "one")
        return replace(made, attempt="one")

    def all_of_them(sink: FilesSink, slice_: Any, attempt: str, receipts: Any) -> list[str]:
        data = os.path.join(sink.root, Layout(sink.pipeline, slice_.stream).data)
        return _aside(sink, slice_, "one", receipts) + glob.glob(f"{data}/{slice_.number:08d}-*")

    same = mock.Mock()
    same.uuid4.return_value.hex = "0" * 32
    with patched(
        (FilesSink, "writer", named),
        (FilesSink, "commit", _tidying(all_of_them)),
        (writer_module, "uuid", same),
    ):
        yield


@mutant("manifest named by slice id, not number")
def _() -> Iterator[None]:
    create = FilesSink._create

    def by_id(self: FilesSink, chain: Chain, manifest: Any) -> None:
        create(self, replace(chain, layout=_ById(chain.layout, manifest.slice.id)), manifest)

    def name(self: Chain, number: int) -> str:
        if isinstance(self.layout, _ById):
            return self.layout.manifest(number)
        found = glob.glob(self.path(f"{self.layout.manifests}/{number:012d}-*.json"))
        newest = max(found, key=lambda name: os.stat(name).st_mtime_ns)
        return os.path.relpath(newest, self.folder.place)

    def numbers(self: Chain, above: int = 0) -> list[int]:
        found = glob.glob(self.path(f"{self.layout.manifests}/*-*.json"))
        numbers = {int(os.path.basename(name)[:12]) for name in found}
        return sorted(number for number in numbers if number > above)

    with patched((FilesSink, "_create", by_id), (Chain, "manifest_name", name), (Chain, "numbers", numbers)):
        yield


class _ById(Layout):
    """A layout whose manifests are named by the slice's id too."""

    def __init__(self, layout: Layout, id_: str) -> None:
        super().__init__(layout.pipeline, layout.stream)
        object.__setattr__(self, "id", id_)

    def manifest(self, number: int) -> str:
        return os.path.join(self.manifests, f"{number:012d}-{self.__dict__['id'][:8]}.json")


@mutant("less 'whole': holding n asks for nothing but its manifest")
def _() -> Iterator[None]:
    def careless(self: Chain) -> Any:
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    with patched((Chain, "last", careless)):
        yield


@mutant("less 'void': recover withdraws nothing")
def _() -> Iterator[None]:
    with patched((FilesSink, "recover", lambda self, stream: [])):
        yield


@mutant("any file of the right name is whole")
def _() -> Iterator[None]:
    with patched((chain_module.Chain, "make_visible", lambda self, manifest: None)):
        yield


@mutant("newest.json before the manifest that it names")
def _() -> Iterator[None]:
    create = FilesSink._create

    def remembered_first(self: FilesSink, chain: Chain, manifest: Any) -> None:
        chain.remember(manifest)
        create(self, chain, manifest)

    with patched((FilesSink, "_create", remembered_first)):
        yield


@mutant("recover leaves newest.json where it withdraws its manifest")
def _() -> Iterator[None]:
    with patched((Chain, "forget", lambda self: None)):
        yield


@mutant("nothing above newest.json is looked for")
def _() -> Iterator[None]:
    numbers = Chain.numbers

    def none_above(self: Chain, above: int = 0) -> list[int]:
        return [] if above else numbers(self)

    with patched((Chain, "numbers", none_above)):
        yield


# ---------------------------------------------------------------- the gate


@mutant("less 'compare with sink': a run does not ask the sink first")
def _() -> Iterator[None]:
    with patched((Gate, "compare_with_sink", lambda self, state: None)):
        yield


@mutant("plan anew on retry")
def _() -> Iterator[None]:
    turn = Gate.turn

    def anew(self: Gate) -> Any:
        store: Any = self.store
        state = store.state(self.pipeline, self.stream)
        if state.intent and not state.reset_wanted:
            with store._lock:
                store._has.streams[(self.pipeline, self.stream)] = replace(state, intent=None)
            planned = self.next_slice(replace(state, intent=None))
            if planned is None:
                return gate_module.Turn.NOTHING
            self.deliver(state, planned)
            return gate_module.Turn.MOVED
        return turn(self)

    with patched((Gate, "turn", anew)):
        yield


@mutant("a rewind is no slice: only the store's mark goes back")
def _() -> Iterator[None]:
    def in_the_store(self: Gate, to: str) -> Any:
        store: Any = self.store
        state = store.state(self.pipeline, self.stream)
        self.compare_with_sink(state)
        mark = find_mark(self.source, self.stream, self.source.content(self.stream), state.last, to)
        store._put(self.lease, self.stream, replace(state, last=replace(state.last, mark=mark)))
        return gate_module.Turn.MOVED

    with patched((Gate, "rewind", in_the_store)):
        yield


@mutant("a rewind or an undo forgets the open slice")
def _() -> Iterator[None]:
    def forgotten(self: Engine, gate: Gate) -> bool:
        store: Any = self.store
        state = store.state(self.pipeline, gate.stream)
        store._put(gate.lease, gate.stream, replace(state, intent=None))
        return True

    with patched((Engine, "_finish_open", forgotten)):
        yield


@mutant("an undo is no slice: the store goes back to the version as it was, number and all")
def _() -> Iterator[None]:
    def in_the_store(self: Gate, version: int) -> Any:
        store: Any = self.store
        state = store.state(self.pipeline, self.stream)
        self.compare_with_sink(state)
        changes = undoing.changes_to(store, self.pipeline, self.stream, version, state)
        to = undoing.find_position(changes, version, self.stream)
        store._put(self.lease, self.stream, replace(state, last=to))
        return gate_module.Turn.MOVED

    with patched((Gate, "undo", in_the_store)):
        yield


@mutant("an undo sets the number of the slice back too")
def _() -> Iterator[None]:
    move_mark = Gate.move_mark

    def renumbered(
        self: Gate, state: Any, mark: Any, content: Any, kind: Kind, plan: Any = None, *, prepare: bool = True
    ) -> Any:
        if kind is Kind.UNDO:
            history = self.store.history(self.pipeline, self.stream)
            then = next(c.position for c in history if c.position and c.position.mark == mark)
            state = replace(state, last=replace(state.last, number=then.number))
        return move_mark(self, state, mark, content, kind, plan, prepare=prepare)

    with patched((Gate, "move_mark", renumbered)):
        yield


@mutant("holds n or more means already in")
def _() -> Iterator[None]:
    def generous(held: Any, slice_: Any) -> Verdict:
        if held and held.number >= slice_.number:
            return Verdict.IN
        return Verdict.NEXT if (held.id if held else "") == slice_.previous else Verdict.OTHER

    with patched((look_module, "verdict", generous)):
        yield


@mutant("the chain is not asked")
def _() -> Iterator[None]:
    with patched((look_module, "verdict", lambda held, slice_: Verdict.NEXT)):
        yield


@mutant("chain kept under a uid born in the store")
def _() -> Iterator[None]:
    chain = FilesSink.chain

    with uid_in_store() as uid:

        def of_uid(self: FilesSink, stream: str) -> Chain:
            made = chain(self, stream)
            return replace(made, layout=_Uid(made.layout.pipeline, made.layout.stream, uid[0]))

        with patched((FilesSink, "chain", of_uid)):
            yield


@contextmanager
def uid_in_store() -> Iterator[list[int]]:
    """A number that is another one once the store was lost."""
    make, lose = MemoryStore.__init__, MemoryStore.lose
    uid = [0]

    def born(self: MemoryStore) -> None:
        uid[0] = 0  # an example must not depend on the one before
        make(self)

    def reborn(self: MemoryStore) -> None:
        uid[0] += 1
        lose(self)

    with patched((MemoryStore, "__init__", born), (MemoryStore, "lose", reborn)):
        yield uid


class _Uid(Layout):
    """A layout whose manifests lie under a number born with the store."""

    def __init__(self, pipeline: str, stream: str, uid: int) -> None:
        super().__init__(pipeline, stream)
        object.__setattr__(self, "uid", uid)

    @property
    def manifests(self) -> str:
        return os.path.join(self.meta, f"manifests{self.__dict__['uid'] or ''}")


@mutant("a process without the lease may stop the stream")
def _() -> Iterator[None]:
    def stop(self: Gate, reason: Any) -> None:
        raise reason

    def heed(self: Engine, lease: Any = None) -> None:
        return None

    with patched((Gate, "stop", stop), (Engine, "_check_interrupts", heed)):
        yield


@mutant("advance without compare-and-set")
def _() -> Iterator[None]:
    def blindly(self: Any, lease: Any, slice_: Any, *, rows: int, bytes_: int, now: Any, run: str, **_: Any) -> int:
        with self._lock:
            state = self.state(lease.pipeline, slice_.stream)
            delivered = Delivered(rows, bytes_)
            return int(self._move(lease, slice_.stream, state, slice_.position, now, "advance", run, delivered))

    with patched((MemoryStore, "advance", blindly)):
        yield
