"""What a pipeline file says of a lake, as PyIceberg and Spark are told it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.errors import InputError
from penstock.lake.lake import Lake, namespace_of
from penstock.lake.options import LakeOptions
from penstock.links.spark import SparkSessionProvider, jars

KEYS = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "hush-hush"}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's own."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "PG"))]:
        monkeypatch.delenv(name)


def place(folder: Path | str = "/data", *, pipeline: str = "shop", **options: Any) -> Lake:
    return Lake.from_options(LakeOptions.model_validate(options), folder=str(folder), pipeline=pipeline)


def spark(found: Lake) -> dict[str, str]:
    """Spark's settings of the catalog itself."""
    at = f"spark.sql.catalog.{found.name}"
    return {key.removeprefix(f"{at}."): value for key, value in found.spark_settings().items() if key.startswith(at)}


# ---------------------------------------------------------------- a folder


def test_the_usual_lake() -> None:
    found = place()
    assert (found.type, found.name, found.namespace) == ("sqlite", "lake", "shop")
    assert (found.warehouse, found.uri, found.folder) == ("file:///data/lake", "/data/lake/catalog.db", "/data/lake")
    assert found.pyiceberg_properties() == {
        "type": "sql",
        "uri": "sqlite:////data/lake/catalog.db?timeout=60",
        "warehouse": "file:///data/lake",
        "py-io-impl": "penstock.lake.parquet.DurableFileIO",
    }
    assert spark(found) == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "type": "jdbc",
        "uri": "jdbc:sqlite:/data/lake/catalog.db?busy_timeout=60000",
        "jdbc.schema-version": "V1",
        "warehouse": "/data/lake",
        "cache-enabled": "false",
    }
    assert found.spark_packages() == (jars.ICEBERG, jars.SQLITE)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "warehouse"),
    [
        ("lake", "file:///data/lake"),
        ("../other/", "file:///other"),
        ("/abs/lake", "file:///abs/lake"),
        ("file:///abs/lake/", "file:///abs/lake"),
        ("~/lake", f"file://{os.path.expanduser('~')}/lake"),
        ("a b/ä", "file:///data/a b/ä"),
        ("s3://bucket/some/path/", "s3://bucket/some/path"),
    ],
)
def test_where_the_files_go(given: str, warehouse: str) -> None:
    catalog = {"uri": "catalog.db"} if given.startswith("s3") else {}
    assert place(warehouse=given, catalog=catalog).warehouse == warehouse


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("c.db", "/data/c.db"),
        ("/abs/c.db", "/abs/c.db"),
        ("sqlite:///c.db", "/data/c.db"),
        ("sqlite:////a/c.db", "/a/c.db"),
    ],
)
def test_where_the_catalog_is(given: str, uri: str) -> None:
    assert place(catalog={"uri": given}).uri == uri


@pytest.mark.parametrize("warehouse", ["", " ", "s3://", "s3:///x", "hdfs://name/x", "s3a://bucket/x", "gs://bucket"])
def test_a_warehouse_that_cannot_be(warehouse: str) -> None:
    with pytest.raises(ValidationError, match="expected a folder or s3://bucket/path"):
        LakeOptions.model_validate({"warehouse": warehouse, "catalog": {"uri": "catalog.db"}})


@pytest.mark.parametrize("sign", ["#", "?", "%"])
def test_signs_that_addresses_use_for_themselves(sign: str) -> None:
    """PyIceberg would cut the path there: every file of every table would be the same one."""
    with pytest.raises(ValidationError, match="a path cannot contain"):
        LakeOptions(warehouse=f"a{sign}b")
    with pytest.raises(InputError, match=r"the lake cannot be stored in file:///data/a.b/lake") as refused:
        place(f"/data/a{sign}b")
    assert "move the pipeline file" in refused.value.next_step
    with pytest.raises(InputError, match="the lake cannot be stored in /data/c"):
        place(catalog={"uri": f"c{sign}.db"})


def test_a_bucket_with_a_sqlite_catalog_needs_to_know_where() -> None:
    with pytest.raises(ValidationError, match=r"requires catalog\.uri"):
        LakeOptions(warehouse="s3://bucket/path")


@pytest.mark.parametrize(
    ("pipeline", "namespace"),
    [("shop", "shop"), ("shop-2.eu", "shop_2_eu"), ("2shop", "p_2shop"), ("läden", "l_den"), ("_x", "p__x")],
)
def test_a_namespace_from_a_pipeline_s_name(pipeline: str, namespace: str) -> None:
    assert namespace_of(pipeline) == namespace
    assert place(pipeline=pipeline).spark_table("orders") == f"`lake`.`{namespace}`.`orders`"
    assert place(pipeline=pipeline, namespace="own").identifier("orders") == ("own", "orders")


# ---------------------------------------------------------------- other catalogs


def test_postgres() -> None:
    catalog = {"type": "jdbc", "uri": "postgresql://ann:p%40ss@db:5433/lake?sslmode=require"}
    found = place(warehouse="/w", catalog=catalog)
    assert found.pyiceberg_properties() == {
        "type": "sql",
        "uri": "postgresql+psycopg://ann:p%40ss@db:5433/lake?sslmode=require",
        "pool_pre_ping": "true",
        "warehouse": "file:///w",
        "py-io-impl": "penstock.lake.parquet.DurableFileIO",
    }
    settings = spark(found)
    assert settings["uri"] == "jdbc:postgresql://db:5433/lake?sslmode=require"
    assert (settings["jdbc.user"], settings["jdbc.password"]) == ("ann", "p@ss")
    assert found.spark_packages() == (jars.ICEBERG, jars.POSTGRES)
    for shown in (repr(found), str(found), repr(LakeOptions.model_validate({"catalog": catalog})), found.shown):
        assert "p%40ss" not in shown
        assert "p@ss" not in shown
    assert found.discreet("no: p@ss, postgresql://ann:p%40ss@db:5433/lake?sslmode=require") == "no: ***, ***"


def test_postgres_with_the_usual_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "ann")
    monkeypatch.setenv("PGPASSWORD", "p@ss")
    settings = spark(place(catalog={"type": "jdbc", "uri": "postgresql://[::1]/lake"}))
    assert settings["uri"] == "jdbc:postgresql://[::1]:5432/lake"
    assert (settings["jdbc.user"], settings["jdbc.password"]) == ("ann", "p@ss")


def test_rest() -> None:
    properties = {"credential": "id:hush-hush", "warehouse": "named", **KEYS, "s3.region": "eu-west-1"}
    found = place(
        warehouse="s3://bucket/path", catalog={"type": "rest", "uri": "https://catalog/", "properties": properties}
    )
    given = found.pyiceberg_properties()
    assert (given["type"], given["uri"], given["warehouse"]) == ("rest", "https://catalog/", "named")
    assert given["oauth2-server-uri"] == "https://catalog/v1/oauth/tokens"
    settings = spark(found)
    assert (settings["type"], settings["uri"], settings["warehouse"]) == ("rest", "https://catalog/", "named")
    assert settings["credential"] == "id:hush-hush"
    assert settings["oauth2-server-uri"] == "https://catalog/v1/oauth/tokens"
    assert (found.catalog_warehouse, found.warehouse) == ("named", "s3://bucket/path")
    assert found.spark_packages() == (jars.ICEBERG, jars.AWS)
    assert "hush-hush" not in repr(found)


def test_keys_that_a_rest_catalog_gives_are_left_to_it() -> None:
    found = place(warehouse="s3://bucket", catalog={"type": "rest", "uri": "https://catalog"})
    assert found.vended
    assert not [key for key in found.pyiceberg_properties() if key.startswith("s3.")]
    assert not [key for key in spark(found) if key.startswith(("s3.", "client."))]


def test_hive_and_glue() -> None:
    hive = place(catalog={"type": "hive", "uri": "thrift://meta:9083"})
    assert hive.pyiceberg_properties()["uri"] == "thrift://meta:9083"
    assert (spark(hive)["type"], spark(hive)["uri"]) == ("hive", "thrift://meta:9083")
    assert hive.spark_packages() == (jars.ICEBERG,)
    properties = {"glue.region": "eu-west-1", "s3.region": "eu-west-1"}
    glue = place(warehouse="s3://bucket", catalog={"type": "glue", "properties": properties})
    assert "uri" not in glue.pyiceberg_properties()
    assert glue.pyiceberg_properties()["glue.region"] == "eu-west-1"
    assert (spark(glue)["type"], spark(glue)["client.region"]) == ("glue", "eu-west-1")
    assert glue.spark_packages() == (jars.ICEBERG, jars.AWS)


# ---------------------------------------------------------------- S3


def on_s3(**properties: str) -> Lake:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    return place(warehouse="s3://bucket/path", catalog={"uri": "catalog.db", "properties": given})


def test_a_server_of_one_s_own() -> None:
    found = on_s3(s3__endpoint="http://127.0.0.1:9000", s3__access_key_id="AKIA", s3__secret_access_key="hush-hush")
    given = found.pyiceberg_properties()
    assert (given["s3.endpoint"], given["s3.region"]) == ("http://127.0.0.1:9000", "us-east-1")
    settings = spark(found)
    assert settings["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert settings["s3.path-style-access"] == "true"
    assert settings["client.region"] == "us-east-1"
    assert (settings["s3.access-key-id"], settings["s3.secret-access-key"]) == ("AKIA", "hush-hush")
    assert settings["warehouse"] == "s3://bucket/path"
    assert found.spark_packages() == (jars.ICEBERG, jars.SQLITE, jars.AWS)
    assert found.folder is None
    assert "hush-hush" not in repr(found)
    assert found.discreet("with AKIA and hush-hush") == "with *** and ***"


def test_amazon_s_own() -> None:
    found = on_s3()
    assert "s3.region" not in found.pyiceberg_properties()
    assert (spark(found)["client.region"], spark(found)["s3.cross-region-access-enabled"]) == ("us-east-1", "true")
    assert "s3.path-style-access" not in spark(found)
    assert spark(on_s3(client__region="eu-west-1"))["client.region"] == "eu-west-1"
    assert on_s3(client__region="eu-west-1").pyiceberg_properties()["s3.region"] == "eu-west-1"


def test_the_usual_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/")
    found = on_s3()
    given = found.pyiceberg_properties()
    assert (given["s3.endpoint"], given["s3.region"]) == ("http://127.0.0.1:9000", "eu-central-1")
    assert (spark(found)["s3.endpoint"], spark(found)["client.region"]) == ("http://127.0.0.1:9000", "eu-central-1")
    # What the pipeline file says comes first.
    assert on_s3(s3__region="eu-west-1", s3__endpoint="http://other").region == "eu-west-1"
    assert on_s3(s3__endpoint="http://other").endpoint == "http://other"
    assert not [key for key in given if "key" in key]


def test_what_is_meant_for_java_alone_is_not_overruled() -> None:
    found = on_s3(s3__endpoint="http://x", s3__path_style_access="false", io_impl="org.example.Io")
    assert spark(found)["s3.path-style-access"] == "false"
    assert spark(found)["io-impl"] == "org.example.Io"
    assert spark(on_s3(s3__endpoint="http://x", s3__force_virtual_addressing="true"))["s3.path-style-access"] == "false"


# ---------------------------------------------------------------- two lakes in one process


def test_one_lake_on_both_sides() -> None:
    spark_provider = SparkSessionProvider()
    for found in (place(namespace="a"), place(namespace="b")):
        spark_provider.require(found.spark_settings(), found.spark_packages())


def test_two_lakes_of_one_name_are_refused() -> None:
    spark_provider = SparkSessionProvider()
    spark_provider.require(place().spark_settings())
    with pytest.raises(
        InputError, match=r"different values of Spark's setting spark\.sql\.catalog\.lake\.(uri|warehouse)"
    ) as refused:
        spark_provider.require(place(warehouse="other").spark_settings())
    assert "/data/other" not in str(refused.value)
    spark_provider.require(place(warehouse="other", catalog={"name": "other"}).spark_settings())
