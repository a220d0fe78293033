"""A prefix of a bucket on S3: files are uploaded in parts, and an upload is completed once its manifest exists.

An upload that is not completed is invisible to every reader. Every process that finds the manifest can complete it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from penstock.core.documents import digest
from penstock.errors import InputError, StreamRefused
from penstock.links import s3
from penstock.links.s3 import S3Options, code_of
from penstock.ports import Probe
from penstock.sinks.files.folder import Damaged, NotStaged
from penstock.sinks.files.layout import Layout, attempt_number, file_number, manifest_number
from penstock.sinks.files.manifest import Manifest, SliceFile
from penstock.sinks.files.upload import Upload

#: the object with which each run sees that the store creates only what is absent
PROBE = "_penstock/conditional-create.txt"
PROBE_TEXT = "penstock tries to create this object again at the start of each run: the store must refuse that.\n"
#: the object that says where the newest full refresh of a stream is
CURRENT = "_current.json"
#: manifests above a known one that are asked for by name, before they are listed
ASKED_FOR = 16
#: times that a conditional write is tried again when another one is under way
TRIES = 5
_GONE = {"404", "NoSuchKey", "NotFound"}
_REFUSED = {"PreconditionFailed", "412"}
_BUSY = {"ConditionalRequestConflict", "OperationAborted", "409"}
_UNUSABLE = {"InvalidPart", "InvalidPartOrder", "EntityTooSmall"}


@dataclass(frozen=True)
class BucketFolder:
    """A prefix of a bucket."""

    bucket: str
    #: without slashes at its ends; empty: the whole bucket
    prefix: str
    options: S3Options = field(repr=False)

    @property
    def place(self) -> str:
        return "/".join(filter(None, (f"s3://{self.bucket}", self.prefix)))

    @property
    def checked_manifests(self) -> int:
        return 2

    @property
    def concurrency(self) -> int:
        return s3.CONCURRENT_REQUESTS

    @property
    def client(self) -> Any:
        return s3.client(self.options)

    def path(self, name: str) -> str:
        return f"{self.place}/{name}"

    def at(self, name: str) -> dict[str, str]:
        """The arguments of a request for an object."""
        return {"Bucket": self.bucket, "Key": f"{self.prefix}/{name}" if self.prefix else name}

    def translate_errors(self) -> AbstractContextManager[None]:
        return s3.translate_errors(self.options, self.bucket, self.place)

    # ------------------------------------------------------------ before a slice

    def connect(self) -> None:
        """One request sees that the bucket is there, may be written, and creates only what is absent."""
        try:
            if not self._put(PROBE, PROBE_TEXT, IfNoneMatch="*"):
                return
            self._refuse_object()
        except Exception as error:
            if code_of(error) == "ObjectParentIsFile":
                raise self._prefix_is_object() from error
            raise
        # It was not there before, or the store does not look.
        if self._put(PROBE, PROBE_TEXT, IfNoneMatch="*"):
            raise InputError(
                f"the store of {self.place} {self.options.where} ignores `If-None-Match: *`: of two writers that "
                "commit the same slice it would keep the second, and rows would be lost or doubled",
                next_step="use a store that creates objects conditionally, as Amazon S3 does, or a local directory",
            )

    def _refuse_object(self) -> None:
        if self.prefix and self._head(self.at("")["Key"].rstrip("/")) is not None:
            self.remove(PROBE)
            raise self._prefix_is_object()

    def _prefix_is_object(self) -> InputError:
        return InputError(
            f"{self.place} is an object, and files cannot be written below it",
            next_step="choose another `directory`, or remove the object",
        )

    def find_problems(self, layout: Layout, *, is_refresh: bool) -> Iterator[StreamRefused]:
        if is_refresh and self._put(PROBE, PROBE_TEXT, IfMatch='"' + "0" * 32 + '"'):
            yield StreamRefused(
                f"the store of {self.place} {self.options.where} ignores `If-Match`: a late writer could point readers "
                "back to an older refresh",
                next_step="use a store that writes objects conditionally, as Amazon S3 does, give the stream a cursor, "
                "or use a local directory",
            )

    def advise_on_mixing(self, stream: str) -> str:
        return (
            "rename the stream in the pipeline file, and set `table` to the table that it reads; or name another "
            f"`directory` and run `penstock state recover FILE --stream {stream}`: the stream begins again there"
        )

    def check_targets(self, layout: Layout, folders: Iterable[str]) -> None:
        return None

    def names(self, folder: str, limit: int | None = None) -> list[str]:
        found: list[str] = []
        for page in self._pages(f"{folder}/", Delimiter="/", MaxKeys=min(limit or 1000, 1000)):
            found += [each["Key"] for each in page.get("Contents", ())]
            found += [each["Prefix"] for each in page.get("CommonPrefixes", ())]
            if limit is not None and len(found) >= limit:
                break
        names = (key.rstrip("/").rpartition("/")[2] for key in found if key != self.at(f"{folder}/")["Key"])
        return sorted(names)

    def has(self, folder: str) -> bool:
        page = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.at(f"{folder}/")["Key"], MaxKeys=1)
        return bool(page.get("Contents"))

    def current(self, layout: Layout) -> str:
        return f"{layout.data}/{CURRENT}"

    def has_current(self, layout: Layout) -> bool:
        return self.size(self.current(layout)) is not None

    # ------------------------------------------------------------ small documents

    def read(self, name: str) -> str | None:
        text, _ = self._get(name)
        return text

    def create(self, name: str, text: str, near: str, before: Callable[[], None]) -> bool:
        before()
        for _ in range(TRIES):
            if self._put(name, text, IfNoneMatch="*"):
                return True
            # The first answer may have been lost, and the request sent again. A manifest names its own attempt.
            there = self.read(name)
            if there is not None:
                return there == text
        return False

    def overwrite(self, name: str, text: str) -> None:
        self._put(name, text)

    def remove(self, name: str) -> None:
        self.client.delete_object(**self.at(name))

    def version(self, name: str) -> object | None:
        found = self._head(self.at(name)["Key"])
        return (found.get("ETag"), found["LastModified"], found.get("VersionId")) if found else None

    def manifest_numbers(self, layout: Layout, above: int) -> list[int]:
        """Asked for one by one, since a look finds one or none; a server may pass over all names to list the last."""
        found: list[int] = []
        while above and len(found) < ASKED_FOR:
            if self.size(layout.manifest(above + len(found) + 1)) is None:
                return found
            found.append(above + len(found) + 1)
        after = {"StartAfter": self.at(layout.manifest(above))["Key"]} if above else {}
        pages = self._pages(f"{layout.manifests}/", **after)
        names = (each["Key"].rpartition("/")[2] for page in pages for each in page.get("Contents", ()))
        return sorted(number for name in names if (number := manifest_number(name)) is not None and number > above)

    # ------------------------------------------------------------ data files

    def prepare(self, layout: Layout, number: int, attempt: str) -> str:
        return ""

    def name_attempt(self, pipeline: str, attempt: str) -> str:
        """Open uploads of several pipelines lie side by side: the name tells whose they are."""
        return _tag(pipeline) + attempt

    def stage(self, staged: str, final: str) -> Upload:
        return Upload(self.client, self.at(final), self.options)

    def check_staged(self, file: SliceFile) -> int:
        parts: list[Any] = []
        try:
            for page in self.client.get_paginator("list_parts").paginate(**self.at(file.name), UploadId=file.staged):
                parts += page.get("Parts", ())
        except Exception as error:
            if code_of(error) == "NoSuchUpload":
                raise NotStaged(f"the upload of {self.path(file.name)} does not exist any more") from error
            raise
        if tuple(part["ETag"] for part in parts) != file.etags:
            raise NotStaged(f"the upload of {self.path(file.name)} does not have the parts that its receipt names")
        return sum(part["Size"] for part in parts)

    def size(self, name: str) -> int | None:
        found = self._head(self.at(name)["Key"])
        return found["ContentLength"] if found else None

    def publish(self, file: SliceFile) -> int | None:
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(file.etags, 1)]
        try:
            self.client.complete_multipart_upload(
                **self.at(file.name), UploadId=file.staged, MultipartUpload={"Parts": parts}
            )
        except Exception as error:
            if code_of(error) in _UNUSABLE:
                raise Damaged(f"its upload cannot be completed ({code_of(error)})") from error
            if code_of(error) != "NoSuchUpload":  # another process has completed it; the size below tells
                raise
        return self.size(file.name)

    def published(self, names: Collection[str]) -> None:
        return None

    # ------------------------------------------------------------ a full refresh

    def stage_current(self, layout: Layout, number: int, attempt: str) -> tuple[str, str] | None:
        return None

    def point(self, layout: Layout, manifest: Manifest, probe: Probe) -> None:
        """Replace the pointer only if it is the one that was read, so that a late writer cannot put it back."""
        name, number = self.current(layout), manifest.slice.number
        wanted = point_to(layout, manifest)
        for _ in range(TRIES):
            try:
                text, etag = self._get(name)
            except ValueError as error:
                raise Damaged(f"{self.path(name)} cannot be read: {error}") from error
            if text == wanted:
                return
            if text is not None and _number_of(text) >= number:
                break
            if self._put(name, wanted, **({"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag})):
                probe.at("files.link_swapped", number=number)
                return
        raise Damaged(f"{self.path(name)} does not point to the refresh of slice {number}")

    def unpoint(self, layout: Layout, manifest: Manifest) -> None:
        if self.read(self.current(layout)) == point_to(layout, manifest):
            self.remove(self.current(layout))

    # ------------------------------------------------------------ leftovers and damage

    def sweep(self, layout: Layout, upto: int, named: Callable[[int], set[str]]) -> None:
        kept: dict[int, set[str]] = {}
        for key, upload in [*self._open_uploads(layout.data), *self._open_uploads(layout.refreshes)]:
            name = key.rpartition("/")[2]
            number = file_number(name)
            if number is None or number > upto or not name.startswith(f"{number:08d}-{_tag(layout.pipeline)}"):
                continue
            if number not in kept:
                kept[number] = named(number)
            if upload not in kept[number]:
                self.abort(key, upload)
        # The refresh that the pointer names and the one before it stay, for readers that are still at work.
        numbered = sorted((number, name) for name in self.names(layout.refreshes) if (number := attempt_number(name)))
        for _, name in numbered[:-2]:
            for each in list(self.walk(f"{layout.refreshes}/{name}")):
                self.remove(each)

    def abort(self, key: str, upload: str) -> None:
        try:
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload)
        except Exception as error:
            if code_of(error) != "NoSuchUpload":
                raise

    def _open_uploads(self, folder: str) -> list[tuple[str, str]]:
        """(key, upload) of every upload below a folder that is not completed."""
        prefix = self.at(f"{folder}/")["Key"]
        pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=prefix)
        return [(each["Key"], each["UploadId"]) for page in pages for each in page.get("Uploads") or ()]

    def withdraw(self, file: SliceFile, target: str) -> None:
        self.abort(self.at(file.name)["Key"], file.staged)
        self.move(file.name, target)

    def walk(self, folder: str) -> Iterator[str]:
        start = len(self.at("")["Key"])
        for page in self._pages(f"{folder}/"):
            for each in page.get("Contents", ()):
                yield each["Key"][start:]

    def move(self, name: str, target: str) -> None:
        found = self._head(self.at(name)["Key"])
        if found is None:
            return
        self.client.copy(self.at(name), **self.at(target), ExtraArgs=self.options.storage_arguments())
        # In a bucket with versions, a mark of deletion would count as an object for some stores' conditional creates.
        version = {"VersionId": found["VersionId"]} if found.get("VersionId") else {}
        self.client.delete_object(**self.at(name), **version)

    def archive(self, layout: Layout, label: str, probe: Probe) -> Sequence[str]:
        raise StreamRefused(
            f"the files in {self.path(layout.data)} are not moved away: a bucket has no rename",
            next_step=self.advise_on_mixing(layout.stream),
        )

    # ------------------------------------------------------------ requests

    def _head(self, key: str) -> Any:
        try:
            return self.client.head_object(Bucket=self.bucket, Key=key)
        except Exception as error:
            if code_of(error) in _GONE:
                return None
            raise

    def _get(self, name: str) -> tuple[str | None, str | None]:
        """The text of an object and its ETag; (None, None): there is none."""
        try:
            found = self.client.get_object(**self.at(name))
        except Exception as error:
            if code_of(error) in _GONE:
                return None, None
            raise
        with found["Body"] as body:
            return body.read().decode("ascii"), found.get("ETag", "")

    def _put(self, name: str, text: str, **condition: str) -> bool:
        """Write an object; False: its condition does not hold, or another write is under way."""
        raw = text.encode("ascii")
        checksum = base64.b64encode(hashlib.md5(raw, usedforsecurity=False).digest()).decode()
        more = self.options.storage_arguments()
        try:
            self.client.put_object(**self.at(name), Body=raw, ContentMD5=checksum, **more, **condition)
        except Exception as error:
            if condition and code_of(error) in _REFUSED | _BUSY | _GONE:
                return False
            raise
        return True

    def _pages(self, folder: str, **more: Any) -> Iterator[Any]:
        prefix = self.at(folder)["Key"]
        yield from self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix, **more)


def _tag(pipeline: str) -> str:
    return digest(pipeline)[:10]


def point_to(layout: Layout, manifest: Manifest) -> str:
    """The text of `_current.json`: where the files of the newest full refresh are, relative to `directory`."""
    document = {
        "penstock_current": 1,
        "number": manifest.slice.number,
        "folder": layout.refresh(manifest.slice.number, manifest.attempt),
        "files": [file.name for file in manifest.files],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _number_of(text: str) -> int:
    try:
        return int(json.loads(text)["number"])
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{CURRENT} cannot be read: {error}") from error
