"""Mistakes one could make with gather and seal, each made on purpose in the real code.

The first four names are those of `gate_model.py`; the state machines of the sealed world must catch every one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.slices import Receipt, Seal, Slice
from penstock.engine import sealing
from penstock.engine.delivery import new_attempt
from penstock.engine.gate import Gate
from penstock.engine.run import Engine
from penstock.links.spools import FolderSpools
from tests.engine.mutants import Mutant, patched, registering
from tests.engine.spooling import Receiver, WithdrawingSink
from tests.store.memory_store import MemoryStore

SEALED_MUTANTS: dict[str, Mutant] = {}
mutant = registering(SEALED_MUTANTS)


@mutant("unsealed spool")
def _() -> Iterator[None]:
    def unsealed(self: Gate, state: Any, slice_: Slice) -> tuple[str, Sequence[Receipt]]:
        attempt = new_attempt()
        return attempt, self.move(state, slice_, attempt)

    with patched((Gate, "stage", unsealed)):
        yield


@mutant("receiver ignores its open slice")
def _() -> Iterator[None]:
    with patched((Receiver, "opened", lambda self, stream: None)):
        yield


@mutant("less 'seal in spool': the seal is in the store alone")
def _() -> Iterator[None]:
    with patched(
        (sealing, "find_beside", lambda spools, slice_: None),
        (sealing, "keep_beside", lambda spools, slice_, seal: True),
        (sealing, "read_all", lambda spools, stream: []),
    ):
        yield


@mutant("less 'withdraw': recover withdraws no open slice")
def _() -> Iterator[None]:
    with patched((WithdrawingSink, "withdraw", lambda self, stream, slice_id: [])):
        yield


@mutant("recover drops a sealed slice like any other")
def _() -> Iterator[None]:
    with patched((Engine, "_resolve_sealed", lambda self, stream, held, drop_sealed: None)):
        yield


@mutant("a sealed slice is moved again, and the newest seal counts")
def _() -> Iterator[None]:
    def again(self: Gate, state: Any, slice_: Slice) -> tuple[str, Sequence[Receipt]]:
        attempt = new_attempt()
        seal = Seal(slice_.id, attempt, tuple(self.move(state, slice_, attempt)))
        self.probe.at("gate.moved", number=slice_.number)
        self.seal(slice_, seal)
        return attempt, seal.receipts

    def newest(self: Any, lease: Any, slice_: Slice, seal: Seal, *, now: Any) -> Seal:
        with self._lock:
            state = self._state_for(lease, slice_)
            self._put(lease, slice_.stream, replace(state, seal=seal))
            return seal

    with patched((Gate, "stage", again), (MemoryStore, "seal", newest), (sealing, "keep_beside", lambda *_: True)):
        yield


@mutant("a process without the lease may seal")
def _() -> Iterator[None]:
    def blindly(self: Any, lease: Any, slice_: Slice, seal: Seal, *, now: Any) -> Seal:
        with self._lock:
            state = self.state(lease.pipeline, slice_.stream)
            self._put(lease, slice_.stream, replace(state, seal=seal))
            return seal

    def newest_beside(self: FolderSpools, stream: str, number: int, slice_id: str, text: str) -> str:
        self.remove_seal(stream, number, slice_id)
        return write_seal(self, stream, number, slice_id, text)

    write_seal = FolderSpools.write_seal
    with patched((MemoryStore, "seal", blindly), (FolderSpools, "write_seal", newest_beside)):
        yield


@mutant("what is staged is not looked at before it is delivered again")
def _() -> Iterator[None]:
    with patched((WithdrawingSink, "is_staged", lambda self, slice_, attempt, receipts: True)):
        yield


@mutant("spools are swept at takeover")
def _() -> Iterator[None]:
    turn = Gate.turn

    def sweeping(self: Gate) -> Any:
        state = self.store.state(self.pipeline, self.stream)
        if state.intent is not None:
            self.spools.sweep(self.stream, state.intent.number)
        return turn(self)

    with patched((Gate, "turn", sweeping)):
        yield


@mutant("staging shared by all attempts")
def _() -> Iterator[None]:
    stage = FolderSpools.stage
    with patched((FolderSpools, "stage", lambda self, stream, number, attempt: stage(self, stream, number, "all"))):
        yield


@mutant("a process without the lease may stop the stream")
def _() -> Iterator[None]:
    def stop(self: Gate, reason: Any) -> None:
        raise reason

    with patched((Gate, "stop", stop), (Engine, "_check_interrupts", lambda self, lease=None: None)):
        yield
