"""What a store has acknowledged is there after SIGKILL."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.contracts.store_contract import NOW, after, later, take

from penstock.ports import StreamState
from penstock.store import open_store

COMMIT = """
import sys, time
from penstock.store import open_store
from tests.contracts.store_contract import NOW, after, deliver, take
store = open_store(sys.argv[1])
lease = take(store)
at = deliver(store, lease, after(None, 1))
store.intend(lease, after(at, 2), now=NOW, run="r")
print("acknowledged", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_was_acknowledged_survives_a_kill(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = str(tmp_path / "store.db") if kind == "sqlite" else request.getfixturevalue("database")
    with subprocess.Popen([sys.executable, "-c", COMMIT, where], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "acknowledged\n"
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
    first = after(None, 1)
    second = after(first.position, 2)
    with closing(open_store(where)) as store:
        assert store.state("shop", "orders") == StreamState(
            last=first.position, intent=second, version=1, rows=10, bytes=1000, last_rows=10, moved_at=NOW
        )
        lease = take(store, "b", now=later(31))
        assert store.advance(lease, second, rows=1, bytes_=1, now=later(32), run="r2") == 2


def test_what_was_not_committed_is_gone_after_a_kill(tmp_path: Path) -> None:
    """Dies inside a transaction, with its changes written but not committed."""
    where = str(tmp_path / "store.db")
    die = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    script = f"""
import sys
from sqlalchemy import Engine, event
from penstock.store import open_store
from tests.contracts.store_contract import NOW, after, take
store = open_store(sys.argv[1])
lease = take(store)
@event.listens_for(Engine, "commit")
def dies(connection):
    {die}
store.intend(lease, after(None, 1), now=NOW, run="r")
"""
    done = subprocess.run([sys.executable, "-c", script, where])
    assert done.returncode == -signal.SIGKILL
    with closing(open_store(where)) as store:
        assert store.streams("shop") == {}
        assert store.holder("shop") is not None
