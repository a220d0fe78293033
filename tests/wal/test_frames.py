"""Records keep what they hold, and a flipped bit anywhere is found and hides nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wal.frames import (
    HEADER_BYTES,
    Damage,
    Header,
    Kind,
    Record,
    UnreadableHeader,
    decode_header,
    encode_record,
    scan,
)

HEADER = Header(3, b"0123456789abcdef", 1_700_000_000_000_000)
PAYLOADS = st.lists(st.binary(max_size=60) | st.just(b"\xf5rec" * 3), min_size=1, max_size=6)


def segment(payloads: list[bytes]) -> bytes:
    return HEADER.encode() + b"".join(encode_record(Kind.BATCH, each) for each in payloads)


@settings(deadline=None)
@given(PAYLOADS)
def test_records_come_back(payloads: list[bytes]) -> None:
    data = segment(payloads)
    assert decode_header(data) == HEADER
    found = list(scan(data))
    assert [each.payload for each in found if isinstance(each, Record)] == payloads
    assert len(found) == len(payloads)


@settings(deadline=None)
@given(PAYLOADS, st.data())
def test_a_flipped_bit_is_found_and_hides_no_other_record(payloads: list[bytes], data: st.DataObject) -> None:
    whole = segment(payloads)
    at = data.draw(st.integers(HEADER_BYTES, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    hit = next(each for each in scan(whole) if isinstance(each, Record) and each.offset <= at < each.end)
    found = list(scan(bytes(damaged)))
    damages = [each for each in found if isinstance(each, Damage)]
    assert [damage.offset for damage in damages] == [hit.offset]
    assert damages[0].end == (hit.end if hit.end < len(whole) else None)
    others = [each for each in scan(whole) if each != hit]
    assert [each for each in found if isinstance(each, Record)] == others


@settings(deadline=None)
@given(PAYLOADS, st.data())
def test_a_torn_tail_is_found(payloads: list[bytes], data: st.DataObject) -> None:
    whole = segment(payloads)
    end = data.draw(st.integers(HEADER_BYTES, len(whole) - 1))
    found = list(scan(whole[:end]))
    kept = [each for each in scan(whole) if isinstance(each, Record) and each.end <= end]
    assert [each for each in found if isinstance(each, Record)] == kept
    torn = [each for each in found if isinstance(each, Damage)]
    assert torn == [] if end == (kept[-1].end if kept else HEADER_BYTES) else torn[0].end is None


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_a_damaged_header_is_refused(at: int) -> None:
    data = bytearray(segment([b"x"]))
    data[at] ^= 4
    with pytest.raises(UnreadableHeader, match=r"format|checksum|begin"):
        decode_header(bytes(data))
