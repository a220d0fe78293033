"""`penstock verify` of lists of an API in a lake: keyed tables and logs, repairs and deletes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.doubles import LoopMover
from tests.harness.rest_server import RestServer
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app
from penstock.links.spark.runtime import SparkRuntime
from penstock.links.spark.session_provider import SparkSessionProvider

# PySpark leaves the socket of a collected answer to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FILE = """\
pipelines:
  shop:
    source: {{type: rest, base_url: "{url}/v1"}}
    sink: {{type: lake, warehouse: "{folder}/lake"}}
    streams:
      changing: {{{charges}, mode: merge, changes: {{updated: updated, rescan: 1m}}}}
      merged: {{{charges}, mode: merge}}
      logged: {{{charges}}}
"""
CHARGES = "path: charges, time: {lag: 0}, columns: {amount: int64}"


class LakeShop:
    def __init__(self, server: RestServer, path: Path) -> None:
        self.server, self.path = server, path

    def penstock(self, verb: str, *words: str) -> Result:
        return CliRunner().invoke(app, [verb, str(self.path), *words], prog_name="penstock")

    def differences(self, *words: str) -> dict[str, dict[str, list[str]]]:
        done = self.penstock("verify", "--json", *words)
        assert done.stdout, (done.stderr, done.exception)
        [pipeline] = json.loads(done.stdout)["pipelines"]
        assert pipeline["problem"] is None, pipeline
        return {each["stream"]: _ids(each) for each in pipeline["streams"]}


def _ids(stream: dict[str, Any]) -> dict[str, list[str]]:
    assert stream["problem"] is None, stream
    return {kind: [key["id"] for key in keys] for kind, keys in stream["differences"].items() if keys}


def test_a_lake_is_compared_and_repaired(
    tmp_path: Path, spark_provider: SparkSessionProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kept(SparkRuntime):
        def close(self) -> None:
            return None

    runtime = Kept(spark_provider, lambda _: LoopMover())
    monkeypatch.setattr(wiring, "runtime_for", lambda *_, **__: runtime)
    spark_provider.session().conf.set("spark.sql.session.timeZone", "America/New_York")
    with RestServer({"charges": {}}) as server:
        shop = LakeShop(server, tmp_path / "shop.yaml")
        shop.path.write_text(FILE.format(url=server.url, folder=tmp_path, charges=CHARGES))
        begin = server.now
        server.arrive("charges", 200)
        server.set_clock(server.now + 60)
        done = shop.penstock("run")
        assert done.exit_code == 0, done.stderr
        assert shop.differences() == {"changing": {}, "merged": {}, "logged": {}}

        server.set_clock(server.now + 3600)
        # Listed late; changed when no run reads it again; deleted.
        server.add("charges", [begin + 30])
        server.alter("charges", "ch_00000009", amount=-1, updated=server.now)
        server.remove("charges", "ch_00000077")
        late, gone = ["ch_00000200"], ["ch_00000077"]
        assert shop.differences() == {
            "changing": {"missing": late, "stale": ["ch_00000009"], "extra": gone},
            "merged": {"missing": late, "extra": gone},
            "logged": {"missing": late},
        }
        done = shop.penstock("verify", "--repair", "--yes")
        assert done.exit_code == 0, (done.stdout, done.stderr)
        assert shop.differences() == {"changing": {}, "merged": {}, "logged": {}}
