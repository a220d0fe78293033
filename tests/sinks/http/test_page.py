"""The pipeline files of the sink's page are valid, and do what the page says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from tests.docs.pages import TOP, blocks
from tests.harness.http_receiver import KeyedReceiver, LedgerReceiver, ReceiverTransport

from penstock import config, sinks, sources
from penstock.links.spools import FolderSpools
from penstock.ports import Context, NoProbe
from penstock.sinks.http import Options, build
from penstock.testing.contracts.delivery import after, deliver, table

PAGE = TOP / "docs" / "sinks" / "http.md"


def test_the_file_of_the_page(tmp_path: Path) -> None:
    block, _ = blocks(PAGE, "yaml")
    path = tmp_path / "shop.yaml"
    path.write_text(block.text)
    environment = {"DATABASE_URL": "postgresql://u@h/d", "RECEIVER_TOKEN": "s3cret-token"}
    file = config.load(path, environment=environment, sources=sources, sinks=sinks)
    shop = file.pipelines["shop"]
    assert isinstance(shop.sink, Options)
    receiver = LedgerReceiver()
    context = Context("shop", str(tmp_path), NoProbe(), spools=FolderSpools(str(tmp_path / "spools"), "shop"))
    sink = build(shop.sink, shop.sink_streams, context, lambda: ReceiverTransport(receiver))  # type: ignore[arg-type]  # of this sink
    deliver(sink, after(None, stream="customers", pipeline="shop"), table(1))
    sink.close()
    assert [row["id"] for row in receiver.readable["crm.customers"]] == [1]
    assert receiver.posts[0].headers["authorization"] == "Bearer s3cret-token"
    assert receiver.posts[0].path == "/v1/streams/crm.customers/batches"


def test_the_webhook_of_the_page(tmp_path: Path) -> None:
    _, block = blocks(PAGE, "yaml")
    path = tmp_path / "alerts.yaml"
    path.write_text(block.text)
    file = config.load(path, environment={"WEBHOOK_URL": "http://receiver.test/T0/B0"}, sources=sources, sinks=sinks)
    alerts = file.pipelines["alerts"]
    receiver = KeyedReceiver()
    context = Context("alerts", str(tmp_path), NoProbe(), spools=FolderSpools(str(tmp_path / "spools"), "alerts"))
    sink = build(alerts.sink, alerts.sink_streams, context, lambda: ReceiverTransport(receiver))  # type: ignore[arg-type]  # of this sink
    rows = pa.table({"id": [1], "customer": ["Ana"], "amount": [2.5]})
    deliver(sink, after(None, stream="orders", pipeline="alerts"), rows)
    sink.close()
    assert receiver.rows("/T0/B0") == [{"text": "Order 1 of Ana was cancelled", "amount": 2.5}]
