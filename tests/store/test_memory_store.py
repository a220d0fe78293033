"""The misfortunes that MemoryStore offers to tests of the engine."""

from tests.contracts.store_contract import NOW, after, deliver, take
from tests.store.memory_store import MemoryStore

from penstock.ports import StreamState


def test_a_copy_is_put_back_as_often_as_wanted() -> None:
    store = MemoryStore()
    lease = take(store)
    first = deliver(store, lease, after(None, 1))
    copy = store.copy()
    for _ in range(2):
        deliver(store, lease, after(first, 2))
        assert store.state("shop", "orders").version == 2
        store.restore(copy)
        assert store.state("shop", "orders").last == first
        assert len(store.history("shop", "orders")) == 1
        assert store.holder("shop") is not None


def test_a_lost_store_is_empty() -> None:
    store = MemoryStore()
    lease = take(store)
    deliver(store, lease, after(None, 1))
    store.start_run(lease, "r", now=NOW)
    store.lose()
    assert store.state("shop", "orders") == StreamState()
    assert (store.holder("shop"), list(store.runs("shop"))) == (None, [])
