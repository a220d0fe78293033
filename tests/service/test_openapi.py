"""The OpenAPI document is true: whatever it allows, and whatever it does not, gets an answer that it documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import (
    CheckFunction,
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.service.receiving import Receiver

from penstock.links.http import protocol
from penstock.service.tokens import TokenFile

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
PRODUCER = "/v1/streams/{name}/producers/{producer}"
OPERATIONS = [
    ("/v1/streams/{name}/batches", "post"),
    ("/v1/streams/{name}/ops", "post"),
    (PRODUCER, "get"),
    (f"{PRODUCER}/slices/{{slice_id}}", "delete"),
    ("/v1/lag", "get"),
    ("/metrics", "get"),
    ("/healthz", "get"),
    ("/readyz", "get"),
]
HEALTH = ("/healthz", "/readyz")
EXAMPLES = 30
QUIET = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[*HealthCheck],
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Receiver, dict[str, str], Any]]:
    """A receiver with tokens: the secret of each, and the schema."""
    receiver = Receiver(
        tmp_path_factory.mktemp("openapi") / "r",
        {"create_streams": True, "streams": {"orders": {"columns": {"id": "int64"}}, "changes": {"takes": "ops"}}},
    )
    tokens = TokenFile(str(receiver.directory))
    secrets = {"root": tokens.create("root", ["admin"]), "none": tokens.create("none", ["operate"])}
    receiver.start()
    try:
        schema = schemathesis.openapi.from_url(
            f"{receiver.url}/openapi.json", headers={"Authorization": f"Bearer {secrets['root']}"}
        )
        yield receiver, secrets, schema
    finally:
        receiver.kill()


def test_every_operation_is_tried_here(guarded: tuple[Receiver, dict[str, str], Any]) -> None:
    _, _, schema = guarded
    assert sorted(found.ok().label for found in schema.get_all_operations()) == sorted(
        f"{method.upper()} {path}" for path, method in OPERATIONS
    )


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_what_is_allowed_is_answered_as_documented(
    guarded: tuple[Receiver, dict[str, str], Any], path: str, method: str
) -> None:
    assert 200 in send_all(guarded, path, method, GenerationMode.POSITIVE, None)


@pytest.mark.parametrize(("path", "method"), OPERATIONS[:2])
@pytest.mark.parametrize("stream", [None, "orders", "changes"])
def test_what_is_not_allowed_is_answered_as_documented(
    guarded: tuple[Receiver, dict[str, str], Any], path: str, method: str, stream: str | None
) -> None:
    # Paths of the other operations can be anything.
    statuses = send_all(guarded, path, method, GenerationMode.NEGATIVE, {"name": stream} if stream else None)
    assert statuses & {400, 409, 415, 422}


def send_all(
    guarded: tuple[Receiver, dict[str, str], Any],
    path: str,
    method: str,
    mode: GenerationMode,
    named: dict[str, Any] | None,
) -> set[int]:
    """Send what schemathesis makes of an operation, and compare the answers with the document; their statuses."""
    receiver, secrets, schema = guarded
    operation: APIOperation[Any, Any, Any, Any] = schema[path][method]
    statuses = set[int]()

    @QUIET
    @given(case=operation.as_strategy(generation_mode=mode, path_parameters=named))
    def send(case: Any) -> None:
        headers = {"Authorization": f"Bearer {secrets['root']}"}
        if method == "post" and "Idempotency-Key" not in (case.headers or {}):
            headers[protocol.KEY] = "k"
        answer = case.call(base_url=receiver.url, headers=headers)
        case.validate_response(answer, checks=CHECKS)
        statuses.add(answer.status_code)

    send()
    return statuses


@pytest.mark.parametrize("token", ["missing", "none"])
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_without_the_scope_nothing_is_answered_but_401_or_403(
    guarded: tuple[Receiver, dict[str, str], Any], path: str, method: str, token: str
) -> None:
    receiver, secrets, schema = guarded
    operation: APIOperation[Any, Any, Any, Any] = schema[path][method]
    expected = 200 if path in HEALTH else 401 if token == "missing" else 403
    before = {found.name for found in receiver.directory.iterdir()}

    @QUIET
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def send(case: Any) -> None:
        headers = {"Authorization": f"Bearer {secrets['none'] if token == 'none' else 'penstock_wrong'}"}
        answer = case.call(base_url=receiver.url, headers=headers)
        case.validate_response(answer, checks=CHECKS)
        assert answer.status_code == expected, answer.text

    send()
    assert {found.name for found in receiver.directory.iterdir()} == before
