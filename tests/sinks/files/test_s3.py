"""The files sink in a bucket: what readers see, what was there before, and what the store is asked for."""

from __future__ import annotations

import json
import pickle
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.harness.versitygw import ACCESS_KEY, SECRET_KEY, gateway
from tests.s3 import S3Server
from tests.sinks.files.buckets import Bucket

from penstock.core.slices import Kind
from penstock.errors import CommitUnclear, InputError, StreamRefused, StreamStopped
from penstock.links import s3
from penstock.links.s3 import S3Options
from penstock.ports import Context, NoProbe, StreamInfo, explain_sink, recover_sink
from penstock.sinks.files import Options, build
from penstock.testing.contracts.delivery import CONTENT, STREAM, after, deliver, position, stage_parts, table

ROWS, REFRESH = StreamInfo(STREAM, Kind.ROWS, ("id",), ("id",)), StreamInfo(STREAM, Kind.REFRESH)


@pytest.fixture
def bucket() -> Bucket:
    server = gateway()
    return Bucket(server, server.bucket())


def three_slices(bucket: Bucket) -> None:
    sink, last = bucket.open(), None
    for number in (1, 2, 3):
        last = deliver(sink, after(last), table(number))


# ---------------------------------------------------------------- what readers see


def test_arrow_reads_a_prefix_by_its_own_listing(bucket: Bucket) -> None:
    """Before and after the commit, partitions included."""
    import pyarrow.dataset as ds
    from pyarrow import fs

    files = fs.S3FileSystem(
        endpoint_override=gateway().endpoint, region="us-east-1", access_key=ACCESS_KEY, secret_key=SECRET_KEY
    )

    def seen() -> list[int]:
        found = ds.dataset(f"{bucket.name}/out", filesystem=files).to_table(columns=["id"])
        return sorted(found.column("id").to_pylist())

    sink = bucket.open(streams={STREAM: {"partition_by": ["bucket(2, id)"]}})
    sink.connect()
    first = deliver(sink, after(None), table(1, 2, 3))
    receipts = stage_parts(sink, after(first), table(4, 5))
    assert seen() == [1, 2, 3]
    sink.commit(after(first), "a1", receipts)
    assert seen() == [1, 2, 3, 4, 5]
    assert {name.split("/")[1] for name in bucket.visible()} == {"id_bucket=0", "id_bucket=1"}


def test_a_refresh_has_a_pointer_and_two_are_kept(bucket: Bucket) -> None:
    sink, last = bucket.open(), None
    for rows in ([1], [2, 3], [4]):
        last = deliver(sink, after(last, kind=Kind.REFRESH), table(*rows), attempt=f"a{rows[0]}")
        sink.sweep(STREAM, last)
        assert sorted(bucket.rows(STREAM)) == rows
    pointer = json.loads(bucket.get("orders/_current.json"))
    assert (pointer["number"], pointer["folder"]) == (3, "_penstock/contract/orders/refresh/3.a4")
    assert [name for name in bucket.listed("orders/") if "_current" not in name] == []
    kept = {name.split("/")[4] for name in bucket.listed("_penstock/contract/orders/refresh/")}
    assert kept == {"2.a2", "3.a4"}


def test_a_late_writer_cannot_point_back(bucket: Bucket) -> None:
    """It reads the pointer, freezes before it writes, and wakes up after another refresh."""
    first = deliver(bucket.open(), after(None, kind=Kind.REFRESH), table(1))
    second = after(first, kind=Kind.REFRESH)
    sink = bucket.open()
    receipts = stage_parts(sink, second, table(2))
    folder: Any = sink.folder
    get, late = type(folder)._get, threading.get_ident()

    def slow(self: Any, name: str) -> Any:
        found = get(self, name)
        is_committed = bucket.manifest(2) in bucket.listed()
        if name.endswith("_current.json") and threading.get_ident() == late and is_committed:
            patch.undo()
            other = bucket.open()
            assert position(other) == second.position
            deliver(other, after(second.position, kind=Kind.REFRESH), table(3), attempt="b1")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(folder), "_get", slow)
        with pytest.raises(StreamStopped, match=r"_current\.json does not point to the refresh of slice 2"):
            sink.commit(second, "a1", receipts)
    assert bucket.rows(STREAM) == [3]
    assert position(bucket.open()).number == 3  # type: ignore[union-attr]


def test_of_many_that_create_one_manifest_one_wins(bucket: Bucket) -> None:
    sink = bucket.open()
    outcomes: list[bool] = []

    def create(number: int) -> None:
        outcomes.append(sink.folder.create("x.json", str(number), "", lambda: None))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 11 + [True]


# ---------------------------------------------------------------- newest.json


def test_a_look_needs_no_listing(bucket: Bucket) -> None:
    three_slices(bucket)
    assert json.loads(bucket.get("_penstock/contract/orders/newest.json"))["number"] == 3
    for older in (1, 2):  # a late writer
        name = bucket.manifest(older)
        id_ = json.loads(bucket.get(name))["id"]
        bucket.put(
            "_penstock/contract/orders/newest.json",
            json.dumps({"penstock_newest": 1, "number": older, "id": id_}).encode(),
        )
        assert position(bucket.open()).number == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b'{"penstock_newest": 2, "number": 9, "id": "x"}'])
def test_without_a_readable_one_all_are_listed(bucket: Bucket, text: bytes) -> None:
    three_slices(bucket)
    bucket.put("_penstock/contract/orders/newest.json", text)
    assert position(bucket.open()).number == 3  # type: ignore[union-attr]
    bucket.remove(bucket.manifest(1))
    with pytest.raises(StreamStopped, match="manifest 1 is missing below manifest 3"):
        bucket.open().held(STREAM)


def test_a_bucket_that_is_restored_in_part_stops(bucket: Bucket) -> None:
    """`newest.json` is newer than the newest manifest."""
    three_slices(bucket)
    bucket.remove(bucket.manifest(3))
    with pytest.raises(StreamStopped) as stopped:
        bucket.open().held(STREAM)
    assert str(stopped.value) == (
        "contract/orders: the output folder is incomplete and cannot be repaired: "
        f"s3://{bucket.name}/out/_penstock/contract/orders/newest.json names slice 3, whose manifest is missing: the "
        "folder was restored to an older state, in part\n"
        "Nothing was changed: the mark stays, and no file was removed.\n"
        "Next: restore the folder, or run `penstock state recover FILE --stream orders`: it withdraws the incomplete "
        "slices, and the next run delivers them again"
    )
    (said,) = recover_sink(bucket.open(), STREAM)
    assert said.startswith("files that no slice names were withdrawn to ")
    assert position(bucket.open()).number == 2  # type: ignore[union-attr]
    assert sorted(bucket.rows(STREAM)) == [1, 2]


def test_a_manifest_of_another_folder_stops(bucket: Bucket) -> None:
    three_slices(bucket)
    other = Bucket(bucket.gateway, bucket.name, prefix="other")
    last = None
    for number in (1, 2, 3):
        last = deliver(other.open(), after(last, content=CONTENT, spool="x"), table(number))
    bucket.put(bucket.manifest(3), other.get(bucket.manifest(3)))
    with pytest.raises(StreamStopped, match="but its manifest is of another"):
        bucket.open().held(STREAM)


# ---------------------------------------------------------------- what was there before


def test_objects_of_others_stay_and_are_named(bucket: Bucket) -> None:
    bucket.occupy(STREAM, 91)
    sink = bucket.open()
    sink.check(ROWS, CONTENT)
    told = [remark.text for remark in explain_sink(sink, ROWS, CONTENT)]
    assert any("holds files that this pipeline did not write (theirs.parquet)" in text for text in told)
    with pytest.raises(StreamRefused) as refused:
        sink.check(REFRESH, CONTENT)
    assert refused.value.what == (
        f"the folder s3://{bucket.name}/out/orders holds other files (theirs.parquet), and a full refresh beside them "
        "would show readers both"
    )
    assert refused.value.next_step == (
        "rename the stream in the pipeline file, and set `table` to the table that it reads; or name another "
        "`directory` and run `penstock state recover FILE --stream orders`: the stream begins again there"
    )


def test_two_pipelines_on_one_prefix(bucket: Bucket) -> None:
    """Both deliver; neither aborts what the other has staged; a refresh is refused."""
    mine, theirs = bucket.open(), bucket.open(pipeline="other")
    staged = stage_parts(theirs, after(None, pipeline="other"), table(2))
    held = deliver(mine, after(None), table(1))
    mine.sweep(STREAM, deliver(mine, after(held), table(3)))
    theirs.commit(after(None, pipeline="other"), "a1", staged)
    assert sorted(bucket.rows(STREAM)) == [1, 2, 3]
    told = [remark.text for remark in explain_sink(mine, ROWS, CONTENT)]
    assert any("holds files that this pipeline did not write (of pipeline other)" in text for text in told)
    refused = bucket.open(pipeline="third")
    with pytest.raises(StreamRefused, match="which pipeline 'contract' writes too"):
        refused.check(REFRESH, CONTENT)


def test_slices_beside_a_refresh_are_refused(bucket: Bucket) -> None:
    sink = bucket.open()
    deliver(sink, after(None, kind=Kind.REFRESH), table(1))
    with pytest.raises(StreamRefused, match=r"holds a full refresh \(`_current.json`\)"):
        sink.check(ROWS, CONTENT)
    with pytest.raises(StreamRefused) as refused:
        sink.archive(STREAM, "now")
    assert refused.value.what == (
        f"the files in s3://{bucket.name}/out/orders are not moved away: a bucket has no rename"
    )


def test_a_bucket_with_versioning(bucket: Bucket) -> None:
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    sink = bucket.open()
    sink.connect()
    last = None
    for number in (1, 2, 3):
        last = deliver(sink, after(last), table(number))
        sink.sweep(STREAM, last)
    bucket.damage(STREAM)
    with pytest.raises(StreamStopped):
        sink.held(STREAM)
    (said,) = recover_sink(sink, STREAM)
    assert said.startswith("slice 3 was withdrawn")
    assert last is not None
    deliver(sink, after(position(sink)), table(3), attempt="b1")
    assert sorted(bucket.rows(STREAM)) == [1, 2, 3]


def test_a_prefix_that_is_an_object_is_refused() -> None:
    """A store with real folders refuses the probe itself; another has both."""
    bucket = Bucket(gateway(), gateway().bucket())
    bucket.client.put_object(Bucket=bucket.name, Key="out", Body=b"x")
    with pytest.raises(InputError) as refused:
        bucket.open().connect()
    assert refused.value.what == f"s3://{bucket.name}/out is an object, and files cannot be written below it"


def test_the_whole_bucket_and_deep_prefixes(bucket: Bucket) -> None:
    for directory in (f"s3://{bucket.name}", f"s3://{bucket.name}/a/b=1/c d/"):
        sink = bucket.open(directory=directory)
        sink.connect()
        sink.check(ROWS, CONTENT)
        sink.sweep(STREAM, deliver(sink, after(None), table(1)))
        assert position(bucket.open(directory=directory)) == position(sink)


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"directory": "gs://b/x"}, "gs:// cannot be written: a commit needs a create that fails if the object exists"),
        ({"directory": "abfss://b/x"}, "abfss:// cannot be written: a commit needs"),
        ({"directory": "file:///x"}, "file:// cannot be written: name the folder by its path"),
        ({"directory": "ftp://b/x"}, "ftp:// cannot be written: use s3://bucket/prefix or a local directory"),
        ({"directory": "s3://Bad_Bucket/x"}, "must be s3://bucket/prefix, with a valid bucket name"),
        ({"directory": "s3://bucket/a//b"}, "the prefix must not have empty parts"),
        ({"directory": "s3://bucket/a/../b"}, "the prefix must not have empty parts"),
        ({"directory": "s3://bucket/_a"}, "no part of the prefix may begin with"),
        (
            {"directory": "s3://bucket/a", "s3": {"endpoint": "localhost:9000"}},
            "must be http:// or https:// and",
        ),
        ({"directory": "s3://bucket/a", "s3": {"endpoint": "http://u:p@h"}}, "must be http:// or https:// and"),
    ],
)
def test_addresses_that_cannot_be_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Options.model_validate(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"directory": "out"}, "sink.s3 is given, but sink.directory is a local folder"),
        ({"target_file_size": 51 << 30}, "sink.target_file_size is above 50GiB, the most on S3"),
        ({"s3": {"access_key_id": "k"}}, "sink.s3.access_key_id and s3.secret_access_key belong together"),
        ({"s3": {"session_token": "t"}}, "sink.s3.session_token needs s3.access_key_id and s3.secret_access_key"),
        ({"s3": {"external_id": "x"}}, "sink.s3.external_id needs s3.role"),
        ({"s3": {"kms_key": "x", "encryption": "AES256"}}, "sink.s3.kms_key needs s3.encryption: aws:kms"),
        (
            {"s3": {"access_key_id": "k", "secret_access_key": "s", "profile": "p"}},
            "sink.s3.profile and s3.access_key_id exclude each other",
        ),
    ],
)
def test_options_that_do_not_fit_together(bucket: Bucket, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        bucket.open(**options).connect()
    assert refused.value.what == said
    assert refused.value.next_step


def test_how_objects_are_stored(bucket: Bucket) -> None:
    """Data files have tags and a class of their own, manifests and data files the encryption."""
    given = {"encryption": "aws:kms", "kms_key": "k", "storage_class": "STANDARD_IA", "tags": {"team": "a b&c"}}
    options = S3Options.model_validate(given)
    encrypted = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}
    assert options.storage_arguments() == encrypted
    assert options.data_arguments() == {**encrypted, "StorageClass": "STANDARD_IA", "Tagging": "team=a+b%26c"}
    bucket.s3 = {"tags": {"team": "data"}}
    deliver(bucket.open(), after(None), table(1))
    (name,) = bucket.visible()
    tags = bucket.client.get_object_tagging(Bucket=bucket.name, Key=f"out/{name}")["TagSet"]
    assert tags == [{"Key": "team", "Value": "data"}]


def test_the_keys_may_come_from_the_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway().endpoint)
    sink = bucket.open(s3={"region": "us-east-1", "path_style": True})
    sink.connect()
    deliver(sink, after(None), table(1))
    assert bucket.rows(STREAM) == [1]


def test_no_secret_is_shown_or_stored(bucket: Bucket) -> None:
    sink = bucket.open()
    deliver(sink, after(None), table(1))
    shown = [repr(sink.options), repr(sink.folder), repr(sink.writer(after(None), "a1")), repr(s3._client.cache_info())]
    shown += [bucket.get(name).decode("latin-1") for name in bucket.listed()]
    assert not any(SECRET_KEY in text or ACCESS_KEY in text for text in shown)
    assert len(pickle.dumps(sink.writer(after(None), "a1"))) < 5000


# ---------------------------------------------------------------- an assumed role


class _Sts(BaseHTTPRequestHandler):
    """Gives the credentials of the test server to one who may assume the role."""

    asked: list[str]

    def do_POST(self) -> None:
        type(self).asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
        body = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
            <AccessKeyId>{ACCESS_KEY}</AccessKeyId><SecretAccessKey>{SECRET_KEY}</SecretAccessKey>
            <SessionToken></SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>
            <AssumedRoleUser><Arn>a</Arn><AssumedRoleId>b</AssumedRoleId></AssumedRoleUser></AssumeRoleResult>
            </AssumeRoleResponse>""".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        return None


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    _Sts.asked = []
    server = HTTPServer(("127.0.0.1", 0), _Sts)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_port}")
    yield _Sts.asked
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_role_is_assumed(bucket: Bucket, sts: list[str]) -> None:
    role = "arn:aws:iam::123456789012:role/penstock"
    bucket.s3 = {"access_key_id": "base", "secret_access_key": "base-secret", "role": role, "external_id": "x7"}
    sink = bucket.open()
    sink.connect()
    deliver(sink, after(None), table(1))
    assert bucket.rows(STREAM) == [1]
    assert len(sts) == 1
    assert "Action=AssumeRole" in sts[0]
    assert "RoleSessionName=penstock" in sts[0]
    assert "ExternalId=x7" in sts[0]
    assert "role%2Fpenstock" in sts[0]


# ---------------------------------------------------------------- another store


def test_seaweedfs_is_good_enough(s3_server: S3Server) -> None:
    """It completes an upload twice without a word, and aborts one that is gone."""
    s3_server.bucket("files")
    given = s3_server.properties
    block = {
        "endpoint": given["s3.endpoint"],
        "region": given["s3.region"],
        "access_key_id": given["s3.access-key-id"],
        "secret_access_key": given["s3.secret-access-key"],
    }
    options = Options.model_validate({"directory": "s3://files/out", "s3": block})
    sink = build(options, {}, Context("contract", "/", NoProbe()))
    sink.connect()
    for kind, stream in ((Kind.ROWS, "orders"), (Kind.REFRESH, "countries")):
        sink.check(StreamInfo(stream, kind), CONTENT)
        first = after(None, stream=stream, kind=kind)
        lost = stage_parts(sink, first, table(9), attempt="b1")
        held = deliver(sink, first, table(1), table(2))
        sink.sweep(stream, held)
        with pytest.raises(CommitUnclear):
            sink.commit(first, "b1", lost)
        last = deliver(sink, after(held, stream=stream, kind=kind), table(3))
        sink.sweep(stream, last)
        assert position(sink, stream) == last
    client = s3.client(S3Options.model_validate(block))
    assert "Uploads" not in client.list_multipart_uploads(Bucket="files")
    keys = [each["Key"] for each in client.list_objects_v2(Bucket="files", Prefix="out/orders/")["Contents"]]
    assert len(keys) == 3
