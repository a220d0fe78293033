"""The files sink on S3 when the store, the network or the credentials fail at some request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from tests.harness.s3_proxy import ACCEPTED, CUT, INTERNAL, LOST_ANSWER, SLOW_DOWN, Fault, Request, S3Proxy
from tests.harness.versitygw import gateway
from tests.sinks.files.buckets import Bucket

from penstock.core.slices import Kind, Part
from penstock.errors import CommitUnclear, ConnectionFailed, InputError, PenstockError, StreamRefused, StreamStopped
from penstock.links import s3
from penstock.links.s3 import S3Options
from penstock.ports import StreamInfo
from penstock.testing.contracts.delivery import CONTENT, STREAM, after, deliver, position, stage_parts, table

EXPIRED = Fault(400, "ExpiredToken")


@pytest.fixture(scope="module")
def patient_proxy() -> Iterator[S3Proxy]:
    with S3Proxy(gateway().endpoint) as made:
        yield made


@pytest.fixture(scope="module")
def impatient_proxy() -> Iterator[S3Proxy]:
    """Its clients try every request once."""
    with S3Proxy(gateway().endpoint) as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3, "ATTEMPTS", 1)
        s3.client(S3Options.model_validate({**gateway().options, "endpoint": made.url}))
        yield made


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[S3Proxy]:
    """One for a module, since making a client takes long."""
    impatient = request.node.get_closest_marker("usefixtures")
    made: S3Proxy = request.getfixturevalue("impatient_proxy" if impatient else "patient_proxy")
    made.heal()
    made.requests.clear()
    yield made
    made.heal()


@pytest.fixture
def bucket(proxy: S3Proxy) -> Bucket:
    """Its sinks go through the proxy; what lies there is looked at without it."""
    server = gateway()
    return Bucket(server, server.bucket(), s3={"endpoint": proxy.url})


#: the requests of a slice's life, from staging to sweeping
REQUESTS = ("begin upload", "part", "list parts", "put", "complete", "head", "get", "list", "list uploads")


@pytest.mark.parametrize("fault", [SLOW_DOWN, LOST_ANSWER], ids=["SlowDown", "lost"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_one_failure_of_a_request_is_tried_again(
    bucket: Bucket, proxy: S3Proxy, request_: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0.01)
    sink = bucket.open()
    sink.connect()
    held = deliver(sink, after(None), table(1))
    proxy.fail(request_, fault, times=1)
    second = after(held)
    receipts = stage_parts(sink, second, table(2), table(3))
    sink.commit(second, "a1", receipts)
    sink.sweep(STREAM, second.position)
    assert position(bucket.open()) == second.position
    assert sorted(bucket.rows(STREAM)) == [1, 2, 3]
    assert bucket.uploads() == []


@pytest.mark.usefixtures("impatient_proxy")
@pytest.mark.parametrize("fault", [EXPIRED, LOST_ANSWER], ids=["expired", "lost"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_slice_survives_requests_that_go_on_failing(
    bucket: Bucket, proxy: S3Proxy, request_: str, fault: Fault
) -> None:
    """It is in or not, and the chain tells; what was staged or committed is not lost."""
    held = deliver(bucket.open(), after(None), table(1))
    second = after(held)
    proxy.fail(request_, fault)
    sink = bucket.open()
    with suppress(ConnectionFailed, CommitUnclear):
        sink.commit(second, "a1", stage_parts(sink, second, table(2), table(3)))
        sink.sweep(STREAM, second.position)
    before = bucket.rows(STREAM)
    assert before.count(1) == 1
    assert len(before) == len(set(before))
    proxy.heal()
    sink = bucket.open()
    if position(sink) != second.position:
        assert position(sink) == held
        sink.commit(second, "b1", stage_parts(sink, second, table(2), table(3), attempt="b1"))
    sink.sweep(STREAM, second.position)
    assert sorted(bucket.rows(STREAM)) == [1, 2, 3]
    assert bucket.uploads() == []
    assert position(bucket.open()) == second.position


@pytest.mark.usefixtures("impatient_proxy")
def test_a_part_that_goes_on_failing_fails_the_part_with_a_next_step(bucket: Bucket, proxy: S3Proxy) -> None:
    proxy.fail("part", INTERNAL)
    with pytest.raises(ConnectionFailed) as failed:
        stage_parts(bucket.open(), after(None), table(1))
    assert str(failed.value) == (
        f"the bucket '{bucket.name}' at {proxy.url} answered InternalError: ordered\n"
        "Nothing was lost: the mark has not moved.\n"
        "Next: run again; if it happens again, see what the store's log says"
    )
    assert bucket.uploads() == []


def large_table() -> pa.Table:
    import numpy

    numbers = pa.array(numpy.random.default_rng(1).random(800_000))
    return pa.table({"id": pa.array(range(800_000)), "text": numbers.cast(pa.string())})


def test_large_files_have_many_parts(bucket: Bucket, proxy: S3Proxy) -> None:
    """And one of them fails on the way."""
    proxy.fail("part", CUT, times=1)
    sink = bucket.open(compression="none")
    slice_ = after(None)
    receipt = sink.writer(slice_, "a1").write(large_table().to_reader(max_chunksize=100_000), Part(0, "{}"))
    sink.commit(slice_, "a1", [receipt])
    assert proxy.count("part") > 2
    assert sum(bucket.rows(STREAM)) == sum(range(800_000))


@pytest.mark.usefixtures("impatient_proxy")
def test_a_part_that_fails_while_the_next_is_encoded(bucket: Bucket, proxy: S3Proxy) -> None:
    """The error passes through Arrow, which has called the upload."""
    sink = bucket.open(compression="none")
    proxy.fail("part", EXPIRED)
    with pytest.raises(ConnectionFailed, match=r"have expired \(ExpiredToken\)"):
        sink.writer(after(None), "a1").write(large_table().to_reader(max_chunksize=100_000), Part(0, "{}"))
    assert bucket.uploads() == []


# ---------------------------------------------------------------- stores that are not good enough


def test_a_store_that_ignores_conditional_creates_is_refused(bucket: Bucket, proxy: S3Proxy) -> None:
    proxy.choose = lambda request: ACCEPTED if request.name == "put" and request.conditional else None
    with pytest.raises(InputError) as refused:
        bucket.open().connect()
    assert str(refused.value) == (
        f"contract: the store of s3://{bucket.name}/out at {proxy.url} ignores `If-None-Match: *`: of two writers that "
        "commit the same slice it would keep the second, and rows would be lost or doubled\n"
        "Nothing was lost: the mark has not moved.\n"
        "Next: use a store that creates objects conditionally, as Amazon S3 does, or a local directory"
    )


def test_a_refresh_needs_conditional_writes_too(bucket: Bucket, proxy: S3Proxy) -> None:
    sink = bucket.open()
    sink.connect()
    proxy.choose = lambda request: ACCEPTED if request.name == "put" and request.conditional else None
    sink.check(StreamInfo(STREAM, Kind.ROWS), CONTENT)
    with pytest.raises(StreamRefused) as refused:
        sink.check(StreamInfo(STREAM, Kind.REFRESH), CONTENT)
    assert refused.value.what == (
        f"the store of s3://{bucket.name}/out at {proxy.url} ignores `If-Match`: a late writer could point readers "
        "back to an older refresh"
    )


def test_a_run_begins_with_one_request_of_a_store_that_it_knows(bucket: Bucket, proxy: S3Proxy) -> None:
    bucket.open().connect()
    proxy.requests.clear()
    bucket.open().connect()
    assert [request.name for request in proxy.requests] == ["put"]


# ---------------------------------------------------------------- answers, word for word


@pytest.mark.usefixtures("impatient_proxy")
@pytest.mark.parametrize(
    ("fault", "kind", "said", "step"),
    [
        (
            Fault(400, "ExpiredToken"),
            ConnectionFailed,
            "the credentials for the bucket {bucket} {where} have expired (ExpiredToken)",
            "renew them, then run again; with a role (`s3.role`, or the machine's) they are renewed by themselves",
        ),
        (
            Fault(403, "AccessDenied"),
            ConnectionFailed,
            "the bucket {bucket} {where} refuses access (AccessDenied)",
            "check the credentials, and that they may list the bucket, and read, write and delete objects below "
            "{place}",
        ),
        (
            Fault(400, "AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>"),
            InputError,
            "the bucket {bucket} {where} is in the region eu-west-3 (AuthorizationHeaderMalformed)",
            "set `s3.region` to eu-west-3",
        ),
        (
            Fault(301, "PermanentRedirect"),
            InputError,
            "the bucket {bucket} {where} is in another region (PermanentRedirect)",
            "set `s3.region` to the bucket's region",
        ),
        (
            Fault(503, "SlowDown"),
            ConnectionFailed,
            "the bucket {bucket} {where} answered SlowDown: ordered",
            "run again; if it happens again, see what the store's log says",
        ),
        (
            Fault(409, "ObjectParentIsFile"),
            InputError,
            "{place} is an object, and files cannot be written below it",
            "choose another `directory`, or remove the object",
        ),
    ],
)
def test_what_a_store_answers_is_explained(
    bucket: Bucket, proxy: S3Proxy, fault: Fault, kind: type[PenstockError], said: str, step: str
) -> None:
    proxy.fail("put", fault)
    names = {"bucket": repr(bucket.name), "where": f"at {proxy.url}", "place": f"s3://{bucket.name}/out"}
    with pytest.raises(kind) as failed:
        bucket.open().connect()
    assert (failed.value.what, failed.value.next_step) == (said.format(**names), step.format(**names))
    assert failed.value.pipeline == "contract"


@pytest.mark.usefixtures("impatient_proxy")
def test_a_wrong_key_a_missing_bucket_and_no_server(bucket: Bucket) -> None:
    where = bucket.s3["endpoint"]
    for more, kind, said in (
        ({"secret_access_key": "not-the-right-one"}, ConnectionFailed, "refuses access (SignatureDoesNotMatch)"),
        ({"access_key_id": "nobody"}, ConnectionFailed, "refuses access ("),
        ({"endpoint": "http://127.0.0.1:9"}, ConnectionFailed, "cannot be reached: "),
    ):
        bucket.s3 = {"endpoint": where, **more}
        with pytest.raises(kind) as failed:
            bucket.open().connect()
        assert said in failed.value.what
        assert "not-the-right-one" not in str(failed.value)
    bucket.s3 = {}
    bucket.name = "nowhere-at-all"
    with pytest.raises(InputError) as missing:
        bucket.open().connect()
    assert str(missing.value) == (
        f"contract: there is no bucket 'nowhere-at-all' at {gateway().endpoint}\n"
        "Nothing was lost: the mark has not moved.\n"
        "Next: create the bucket, or correct `directory: s3://nowhere-at-all/out`, `s3.endpoint` and `s3.region`"
    )


# ---------------------------------------------------------------- late writers and lost uploads


def test_a_late_writer_completes_nothing_that_is_not_named(bucket: Bucket, proxy: S3Proxy) -> None:
    """It has lost the manifest, and completes its upload all the same: the listing shows nothing of it."""
    slice_ = after(None)
    late = stage_parts(bucket.open(), slice_, table(9), attempt="b1")
    sink = bucket.open()
    held = deliver(sink, slice_, table(1))
    sink.sweep(STREAM, held)
    assert bucket.uploads() == []
    with pytest.raises(CommitUnclear):
        bucket.open().commit(slice_, "b1", late)
    assert bucket.rows(STREAM) == [1]


def test_a_winner_that_wakes_late_completes_what_others_have_completed(bucket: Bucket, proxy: S3Proxy) -> None:
    """It is frozen at its first completion; others finish, go on and sweep; then it wakes."""
    slice_ = after(None)
    winner = bucket.open()
    receipts = stage_parts(winner, slice_, table(1), table(2))
    begun: list[bool] = []

    def choose(request: Request) -> Fault | None:
        if request.name == "complete" and not begun:
            begun.append(True)
            other = bucket.open()
            assert position(other) == slice_.position
            other.sweep(STREAM, slice_.position)
            other.sweep(STREAM, deliver(other, after(slice_.position), table(3), attempt="c1"))
        return None

    proxy.choose = choose
    winner.commit(slice_, "a1", receipts)
    assert begun
    assert sorted(bucket.rows(STREAM)) == [1, 2, 3]
    assert position(bucket.open()).number == 2  # type: ignore[union-attr]


def test_an_upload_that_is_aborted_before_the_commit_leaves_the_slice_out(bucket: Bucket) -> None:
    """As a lifecycle rule does, or somebody who tidies up."""
    sink = bucket.open()
    slice_ = after(None)
    receipts = stage_parts(sink, slice_, table(1), table(2))
    key, upload = bucket.uploads()[0]
    bucket.client.abort_multipart_upload(Bucket=bucket.name, Key=key, UploadId=upload)
    with pytest.raises(CommitUnclear, match="does not exist any more"):
        sink.commit(slice_, "a1", receipts)
    assert sink.held(STREAM) is None
    assert bucket.rows(STREAM) == []
    deliver(sink, slice_, table(1), table(2), attempt="b1")
    assert sorted(bucket.rows(STREAM)) == [1, 2]


def test_an_upload_that_is_aborted_after_the_manifest_stops_the_stream(bucket: Bucket, proxy: S3Proxy) -> None:
    sink = bucket.open()
    first = deliver(sink, after(None), table(1))
    second = after(first)
    receipts = stage_parts(sink, second, table(2), table(3))

    def choose(request: Request) -> Fault | None:
        if request.name == "complete" and (uploads := bucket.uploads()):
            key, upload = uploads[-1]
            bucket.client.abort_multipart_upload(Bucket=bucket.name, Key=key, UploadId=upload)
        return None

    proxy.choose = choose
    with pytest.raises(StreamStopped) as stopped:
        sink.commit(second, "a1", receipts)
    assert "of slice 2 is missing or has changed size, although its manifest names it" in stopped.value.what
    proxy.heal()
    (said,) = sink.recover(STREAM)
    assert said.startswith(f"slice 2 was withdrawn to s3://{bucket.name}/out/_penstock/contract/orders/withdrawn/2.")
    assert bucket.rows(STREAM) == [1]
    assert bucket.uploads() == []
    deliver(sink, second, table(2), table(3), attempt="c1")
    assert sorted(bucket.rows(STREAM)) == [1, 2, 3]


def test_parts_that_the_store_has_lost_stop_the_stream(bucket: Bucket, proxy: S3Proxy) -> None:
    """Once it has them again, the slice is completed."""
    sink = bucket.open()
    slice_ = after(None)
    receipts = stage_parts(sink, slice_, table(1))
    proxy.fail("complete", Fault(400, "InvalidPart"))
    said = r"of slice 1: its upload cannot be completed \(InvalidPart\)"
    with pytest.raises(StreamStopped, match=said):
        sink.commit(slice_, "a1", receipts)
    with pytest.raises(StreamStopped, match=said):
        bucket.open().held(STREAM)
    assert bucket.rows(STREAM) == []
    proxy.heal()
    assert position(bucket.open()) == slice_.position
    assert bucket.rows(STREAM) == [1]
