"""Pieces of records are written one after the other, however little of them the kernel takes at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.wal.segments import write_at


@pytest.mark.parametrize("at_once", [1, 3, 4, 1 << 20])
def test_every_byte_is_written_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    def pwritev(descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
        assert len(pieces) <= os.sysconf("SC_IOV_MAX")
        return os.pwrite(descriptor, b"".join(pieces)[:at_once], offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    pieces = [b"abcd", b"", b"efg", *(bytes([65 + n % 26]) for n in range(3000)), b"end"]
    path = tmp_path / "segment"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    write_at(descriptor, pieces, 5)
    os.close(descriptor)
    assert path.read_bytes() == bytes(5) + b"".join(pieces)
