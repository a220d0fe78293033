"""One file as a multipart upload that is not completed here: readers do not see it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.links.s3 import S3Options
from penstock.sinks.files.folder import Staged

if TYPE_CHECKING:
    import pyarrow as pa

#: size of a part; S3 takes 10,000 parts of at least 5 MiB
PART_BYTES = 8 << 20
#: parts of one file that are sent at the same time, while the next one is encoded
SENT_AT_ONCE = 2


class Upload:
    """A file that is being sent, part by part."""

    def __init__(self, client: Any, at: Mapping[str, str], options: S3Options) -> None:
        import pyarrow as pa

        self._client, self._at, self._options = client, dict(at), options
        self._buffer = bytearray()
        self._checksum = hashlib.sha256()
        self._size = 0
        self._id: str | None = None
        self._parts: list[Future[str]] = []
        self._pool: ThreadPoolExecutor | None = None
        #: for Arrow
        self.closed = False
        self.stream: pa.NativeFile = pa.PythonFile(self, mode="w")

    # ------------------------------------------------------------ what Arrow calls

    def write(self, data: bytes) -> int:
        self._buffer += data
        self._size += len(data)
        while len(self._buffer) >= PART_BYTES:
            part = bytes(memoryview(self._buffer)[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            self._send(part)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True

    # ------------------------------------------------------------ as a staged file

    def finish(self) -> Staged:
        if self._buffer or not self._parts:
            last, self._buffer = bytes(self._buffer), bytearray()
            self._send(last)
        etags = tuple(part.result() for part in self._parts)
        self._end()
        assert self._id is not None
        return Staged(self._id, self._size, self._checksum.hexdigest(), etags)

    def discard(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        for part in self._parts:
            part.cancel()
        self._end()
        if self._id is not None:
            # What made the writer give up may prevent this too: then the sweep after the slice aborts it.
            with suppress(BotoCoreError, ClientError):
                self._client.abort_multipart_upload(**self._at, UploadId=self._id)

    def _send(self, part: bytes) -> None:
        """Send a part beside what is encoded next; wait if too many are under way."""
        self._checksum.update(part)
        if self._id is None:
            made = self._client.create_multipart_upload(**self._at, **self._options.data_arguments())
            self._id = str(made["UploadId"])
            self._pool = ThreadPoolExecutor(SENT_AT_ONCE)
        if len(self._parts) >= SENT_AT_ONCE:
            self._parts[-SENT_AT_ONCE].result()
        assert self._pool is not None
        self._parts.append(self._pool.submit(self._send_part, len(self._parts) + 1, part))

    def _send_part(self, number: int, part: bytes) -> str:
        checksum = base64.b64encode(hashlib.md5(part, usedforsecurity=False).digest()).decode()
        sent = self._client.upload_part(
            **self._at, UploadId=self._id, PartNumber=number, Body=part, ContentMD5=checksum
        )
        return str(sent["ETag"])

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
