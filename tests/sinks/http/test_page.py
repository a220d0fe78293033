"""The pipeline file of the sink's page is valid, and does what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import TOP, blocks
from tests.harness.http_receiver import LedgerReceiver, ReceiverTransport

from penstock import config, sinks, sources
from penstock.links.spools import FolderSpools
from penstock.ports import Context, NoProbe
from penstock.sinks.http import Options, build
from penstock.testing.contracts.delivery import after, deliver, table

PAGE = TOP / "docs" / "sinks" / "http.md"


def test_the_file_of_the_page(tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "yaml")
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
