"""Connections to S3 and stores that speak its protocol: the options, the client, and errors that say what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from penstock.errors import ConnectionFailed, InputError, PenstockError

#: requests that one client sends at the same time
CONCURRENT_REQUESTS = 16
#: attempts at one request; waits between them grow
ATTEMPTS = 6
#: codes of servers that refuse access
_DENIED = {
    "AccessDenied",
    "XAdminUserNotFound",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AllAccessDisabled",
    "Forbidden",
    "403",
}
_EXPIRED = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired", "ExpiredTokenException"}
_OTHER_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"}


class S3Options(BaseModel):
    """How the bucket is reached, and how objects are stored in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str | None = Field(
        default=None,
        description="address of a store other than Amazon's; default: `AWS_ENDPOINT_URL_S3`, or Amazon",
        examples=["http://localhost:9000"],
    )
    region: str | None = Field(
        default=None, description="the bucket's region; default: that of the environment", examples=["eu-central-1"]
    )
    path_style: bool | None = Field(
        default=None,
        description="write the bucket's name into the path of addresses instead of the host; default: only with "
        "`endpoint`",
    )
    access_key_id: SecretStr | None = Field(
        default=None,
        description="default: the credentials of the environment: variables, shared files, the machine's role",
        examples=["${S3_KEY}"],
    )
    secret_access_key: SecretStr | None = Field(
        default=None, description="belongs to `access_key_id`", examples=["${S3_SECRET}"]
    )
    session_token: SecretStr | None = Field(
        default=None, description="belongs to temporary credentials; default: none", examples=["${S3_TOKEN}"]
    )
    profile: str | None = Field(
        default=None, description="a profile of the shared credentials files; default: `AWS_PROFILE`"
    )
    role: str | None = Field(
        default=None,
        description="a role to assume with these credentials, by its ARN; default: none",
        examples=["arn:aws:iam::123456789012:role/penstock"],
    )
    external_id: str | None = Field(default=None, description="external id that the role asks for; default: none")
    encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = Field(
        default=None, description="server-side encryption: `AES256`, `aws:kms` or `aws:kms:dsse`; default: the bucket's"
    )
    kms_key: str | None = Field(
        default=None, description="the key of `aws:kms` encryption; default: the account's", examples=["alias/penstock"]
    )
    storage_class: str | None = Field(
        default=None,
        description="storage class of data files; manifests are in the standard class; default: the standard class",
        examples=["STANDARD_IA"],
    )
    tags: Mapping[str, str] = Field(
        default_factory=dict,
        description="tags of every data file, at most ten; default: none",
        examples=[{"team": "data"}],
        max_length=10,
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
                raise ValueError("must be http:// or https:// and a host, without a user")
        return value

    def find_conflict(self) -> str | None:
        """Keys that do not fit together, as a message; None: all do."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            return "s3.access_key_id and s3.secret_access_key belong together"
        if self.session_token is not None and self.access_key_id is None:
            return "s3.session_token needs s3.access_key_id and s3.secret_access_key"
        if self.profile is not None and self.access_key_id is not None:
            return "s3.profile and s3.access_key_id exclude each other"
        if self.external_id is not None and self.role is None:
            return "s3.external_id needs s3.role"
        if self.kms_key is not None and self.encryption not in ("aws:kms", "aws:kms:dsse"):
            return "s3.kms_key needs s3.encryption: aws:kms"
        return None

    @property
    def where(self) -> str:
        """Where the store is, for messages."""
        endpoint = self.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return f"at {endpoint}" if endpoint else f"in {self.region or 'the region of the environment'}"

    def storage_arguments(self) -> dict[str, str]:
        """Arguments of a put or an upload that say how the object is stored."""
        given: dict[str, str] = {}
        if self.encryption:
            given["ServerSideEncryption"] = self.encryption
        if self.kms_key:
            given["SSEKMSKeyId"] = self.kms_key
        return given

    def data_arguments(self) -> dict[str, str]:
        """The same of a data file."""
        given = self.storage_arguments()
        if self.storage_class:
            given["StorageClass"] = self.storage_class
        if self.tags:
            given["Tagging"] = urlencode(dict(self.tags))
        return given

    def key(self) -> str:
        """The options as text that is equal for equal options, with secrets: never shown."""
        document = self.model_dump()
        return repr(
            {
                name: value.get_secret_value() if isinstance(value, SecretStr) else value
                for name, value in document.items()
            }
        )


def client(options: S3Options) -> Any:
    """The client of this process. It can be shared by threads; it is kept, with its connections."""
    return _client(os.getpid(), _Keyed(options))


class _Keyed:
    """Options that can be looked up, and whose representation has no secrets."""

    def __init__(self, options: S3Options) -> None:
        self.options, self._key = options, options.key()

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and other._key == self._key


@lru_cache(maxsize=32)
def _client(_process: int, keyed: _Keyed) -> Any:  # a forked process does not share connections
    from boto3.session import Session
    from botocore.config import Config

    options = keyed.options
    path_style = options.path_style if options.path_style is not None else options.endpoint is not None
    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        s3={"addressing_style": "path" if path_style else "auto"},
        max_pool_connections=CONCURRENT_REQUESTS,
        connect_timeout=10,
        read_timeout=120,
        # Other stores do not know the newer checksums; parts and manifests are sent with their MD5.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = Session(botocore_session=_assume_role(options) if options.role else _session(options))
    return session.client("s3", region_name=options.region, endpoint_url=options.endpoint, config=config)


def _session(options: S3Options) -> Any:
    from botocore.session import Session

    session = Session(profile=options.profile)
    if options.access_key_id is not None and options.secret_access_key is not None:
        token = options.session_token.get_secret_value() if options.session_token else None
        session.set_credentials(
            options.access_key_id.get_secret_value(), options.secret_access_key.get_secret_value(), token
        )
    return session


def _assume_role(options: S3Options) -> Any:
    """A session whose credentials are those of the role, and are renewed before they expire."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.session import Session

    base = _session(options)
    more = {"ExternalId": options.external_id} if options.external_id else {}

    def make_sts(service: str, **given: Any) -> Any:
        return base.create_client(service, **{"region_name": options.region, **given})

    fetcher = AssumeRoleCredentialFetcher(
        client_creator=make_sts,
        source_credentials=base.get_credentials(),
        role_arn=options.role,
        extra_args={"RoleSessionName": "penstock", **more},
    )
    session = Session(profile=options.profile)
    session._credentials = DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method="assume-role")
    return session


def code_of(error: Exception) -> str:
    """The code of a server's answer; empty: the server did not answer."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def _answer(error: Exception) -> dict[str, Any]:
    # The client's errors without an answer have None here.
    return getattr(error, "response", None) or {}


@contextmanager
def translate_errors(options: S3Options, bucket: str, place: str) -> Iterator[None]:
    """Raise what S3 answers as penstock's own error, with a next step. `place`: the address in the pipeline file."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise explain(error, options, bucket, place) from error


def explain(error: Exception, options: S3Options, bucket: str, place: str) -> PenstockError:
    """What an error of the client means."""
    code, where = code_of(error), options.where
    if code == "NoSuchBucket":
        return InputError(
            f"there is no bucket {bucket!r} {where}",
            next_step=f"create the bucket, or correct `directory: {place}`, `s3.endpoint` and `s3.region`",
        )
    if code in _EXPIRED:
        return ConnectionFailed(
            f"the credentials for the bucket {bucket!r} {where} have expired ({code})",
            next_step="renew them, then run again; with a role (`s3.role`, or the machine's) they are renewed by "
            "themselves",
        )
    if code in _OTHER_REGION:
        region = _answer(error).get("Error", {}).get("Region")
        right = f"is in the region {region}" if region else "is in another region"
        return InputError(
            f"the bucket {bucket!r} {where} {right} ({code})",
            next_step=f"set `s3.region` to {region}" if region else "set `s3.region` to the bucket's region",
        )
    if code in _DENIED or _answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode") in (401, 403):
        return ConnectionFailed(
            f"the bucket {bucket!r} {where} refuses access ({code})",
            next_step="check the credentials, and that they may list the bucket, and read, write and delete objects "
            f"below {place}",
        )
    kind = type(error).__name__
    if kind in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"):
        return InputError(
            f"there are no credentials for the bucket {bucket!r} {where}: {_last_words(error)}",
            next_step="set `s3.access_key_id` and `s3.secret_access_key`, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or `s3.profile`",
        )
    if kind == "NoRegionError":
        return InputError(
            f"the region of the bucket {bucket!r} is not known", next_step="set `s3.region`, or AWS_REGION"
        )
    if code:
        return ConnectionFailed(
            f"the bucket {bucket!r} {where} answered {code}: {_last_words(error)}",
            next_step="run again; if it happens again, see what the store's log says",
        )
    return ConnectionFailed(
        f"the bucket {bucket!r} {where} cannot be reached: {_last_words(error)}",
        next_step="check `s3.endpoint`, and that the server runs, then run again",
    )


def _last_words(error: Exception) -> str:
    message = _answer(error).get("Error", {}).get("Message")
    return " ".join(str(message or error).split())
