"""Requests to a bucket by the `obstore` library.

They are about keys and objects, not files. Each request is checked. A failed one is retried by the library
for `RETRY_S` (`bucket_login.py`); its last error becomes an error of the link, the operator or the caller, in
the terms of `session`. Paths are for messages.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.errors import (
    BlockedError,
    DeniedError,
    FullError,
    LinkError,
    LoginError,
    MissingError,
    NoRootError,
    TargetError,
    TransientError,
)
from rla_client.contract.bucket_list import UnlistableError, list_all, list_folder

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, ListResult, ObjectMeta, PutMode
    from obstore.store import ObjectStore

WHOLE_BYTES: Final = 8 << 20  # of one PUT; a larger file goes as a multipart upload in pieces of this size
PIECES: Final = 4  # of a multipart upload at a time
QUICK_BYTES: Final = 1 << 20  # a longer request gets the time of a large piece
QUICK_READ_BYTES: Final = (
    256 << 10
)  # many reads of this size run at once, also over a slow line; of larger ones PIECES
MAX_LEFT_OUT: Final = 1000  # skipped keys that are remembered and reported
COPY_BYTES: Final = 5 * 10**9  # S3 copies objects up to 5 GB; a longer one is read and sent again
LOGIN_HINT: Final = "see docs/how-to/master.md, A bucket as the master: how the agent gets its credentials"
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z]+)</Code>")
_NO_BUCKET: Final = {"NoSuchBucket", "ContainerNotFound"}
_LOGIN_CODES: Final = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "AuthenticationFailed",
}
_FULL_CODES: Final = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "QuotaExceededException"}
_CREDENTIALS: Final = ("169.254.", "metadata.google", "redential")
_LATER: Final = {408, 429}  # client errors that are transient
log = logging.getLogger("rla_agent.replicate")


class RefusedError(TransientError):
    """A condition does not hold (`changed`), or the server supports none."""

    def __init__(self, operation: str, path: bytes, why: str, *, changed: bool) -> None:
        self.changed = changed
        super().__init__(operation, path, why)


class Bucket:
    """One bucket, for several threads."""

    def __init__(self, store: ObjectStore, bulk: ObjectStore, name: str) -> None:
        """`bulk`: the same with the time that a large piece may take; `name`: for messages."""
        from obstore.store import GCSStore  # noqa: PLC0415 - an extra, and only this needs it

        self._store, self._bulk = store, bulk
        self._is_gcs = isinstance(store, GCSStore)
        self._name = name
        self._md5_etags = True
        self._bare_etags = False
        self._counting = threading.Lock()
        self._large_reads = threading.BoundedSemaphore(PIECES)
        self.written_bytes = 0
        self.left_out: dict[str, None] = {}  # keys that name no file

    def head(self, key: str, path: bytes) -> tuple[ObjectMeta, Attributes] | None:
        """An object's state and metadata; None: not there."""
        import obstore  # noqa: PLC0415 - an extra, and only this needs it

        try:
            with self._converted("look at", path):
                found = obstore.get(self._store, key, options={"head": True})
                return found.meta, found.attributes
        except MissingError:
            return None

    def some(self, key: str, path: bytes) -> bool:
        """Whether there are objects whose keys begin with `key/`."""
        import obstore  # noqa: PLC0415
        from obstore.exceptions import InvalidPathError  # noqa: PLC0415

        with self._converted("list", path):
            try:
                return bool(next(iter(obstore.list(self._store, key or None, chunk_size=1)), ()))
            except InvalidPathError:
                return True  # one that the library cannot name is in the page

    def all(self, key: str, path: bytes) -> list[ObjectMeta]:
        """All objects whose keys begin with `key/` and name a file."""
        with self._converted("list", path):
            return [*list_all(self._store, key, self.leave_out)]

    def folder(self, key: str, path: bytes) -> ListResult[list[ObjectMeta]]:
        """Objects directly below `key/`, and the first components of keys further below."""
        with self._converted("list", path):
            return list_folder(self._store, key, self.leave_out)

    def leave_out(self, key: str) -> None:
        """Report an object or folder whose key names no file, so that it affects no other."""
        if key not in self.left_out and len(self.left_out) < MAX_LEFT_OUT:
            self.left_out[key] = None
            log.info("%s: an object is skipped, its key is no file name: %r", self._name, key)

    def put(
        self, key: str, path: bytes, data: bytes, attributes: Attributes | None, mode: PutMode | None
    ) -> str | None:
        """PUT an object and check that all of it has arrived; returns its etag.

        Raises:
            RefusedError: the condition `mode` does not hold, or the server knows none.
        """
        etag = (mode.get("e_tag") or "") if isinstance(mode, dict) else ""
        if etag and self._is_gcs:
            held = self._with_etag(key, path, etag)
            if held is None:
                raise RefusedError("send", path, "it was replaced", changed=True)
            generation: PutMode = {"e_tag": etag, "version": held["version"]}  # the condition that GCS knows
            return self._put(key, path, data, attributes, generation)
        bare = self._bare_etags
        first: PutMode | None = {"e_tag": etag.strip('"')} if etag and bare else mode
        try:
            return self._put(key, path, data, attributes, first)
        except RefusedError as error:
            if not error.changed or not etag or self._with_etag(key, path, etag) is None:
                raise  # else it holds after all: Ceph (16.2) accepts only etags without quotes
            mode = {"e_tag": etag if bare else etag.strip('"')}
        made = self._put(key, path, data, attributes, mode)
        self._bare_etags = not bare  # so this store needs them
        return made

    def _put(
        self, key: str, path: bytes, data: bytes, attributes: Attributes | None, mode: PutMode | None
    ) -> str | None:
        import obstore  # noqa: PLC0415

        store = self._store if len(data) <= QUICK_BYTES else self._bulk
        with self._converted("send", path):
            made = obstore.put(store, key, data, attributes=attributes, mode=mode, use_multipart=False)
        self._check_arrived(key, path, data, made["e_tag"])
        self._count(len(data))
        return made["e_tag"]

    def _with_etag(self, key: str, path: bytes, etag: str) -> ObjectMeta | None:
        """The object, if it still has this etag."""
        found = self.head(key, path)
        return found[0] if found is not None and found[0]["e_tag"] == etag else None

    def _check_arrived(self, key: str, path: bytes, data: bytes, etag: str | None) -> None:
        """Check that a body has arrived completely.

        S3 answers with the MD5. Where the answer is none (encryption with customer keys, GCS, Azure), only
        the size is checked, beside the store's own check of the received body.
        """
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if not self._md5_etags or (etag or "").strip('"') == digest:
            return
        found = self.head(key, path)
        if found is None or found[0]["size"] != len(data):
            raise TransientError("send", path, "the bucket does not hold what was sent")
        self._md5_etags = False

    def heeds_conditions(self, key: str, path: bytes) -> bool:
        """Whether the store refuses to make an existing object; `key` is made to test it, and deleted."""
        self.put(key, path, b"first\n", None, None)
        try:
            self.put(key, path, b"second\n", None, "create")
        except RefusedError as error:
            return error.changed
        finally:
            self.delete([key], path)
        return False

    def put_pieces(
        self, key: str, path: bytes, pieces: Iterable[bytes], attributes: Attributes
    ) -> str | None:
        """A multipart upload; there is no object where `pieces` raises."""
        import obstore  # noqa: PLC0415

        with ThreadPoolExecutor(1, "bucket-pieces") as reader, self._converted("send", path):
            made = obstore.put(
                self._bulk,
                key,
                self._counted(pieces, reader),
                attributes=attributes,
                use_multipart=True,
                chunk_size=WHOLE_BYTES,
                max_concurrency=PIECES,
            )
        return made["e_tag"]

    def _counted(self, pieces: Iterable[bytes], reader: ThreadPoolExecutor) -> Iterator[bytes]:
        """The pieces, each read in another thread, since the library's thread must not send requests."""
        rest = iter(pieces)
        while (piece := reader.submit(next, rest, None).result()) is not None:
            self._count(len(piece))
            yield piece

    def _count(self, count: int) -> None:
        with self._counting:
            self.written_bytes += count

    def range(self, key: str, path: bytes, begin: int, end: int, etag: str | None) -> bytes:
        """Bytes of an object.

        Raises:
            RefusedError: it has another etag now.
        """
        import obstore  # noqa: PLC0415

        options: GetOptions = {"range": (begin, end)}
        if etag is not None:
            options["if_match"] = etag
        large = end - begin > QUICK_READ_BYTES
        with self._large_reads if large else nullcontext(), self._converted("read", path):
            store = self._bulk if large else self._store
            data = bytes(obstore.get(store, key, options=options).bytes())
        if len(data) != end - begin:
            raise LinkError("read", path, f"{len(data)} bytes came of {end - begin}")
        return data

    def copy(self, source: str, goal: str, size: int, path: bytes) -> None:
        """Copy an object of `size` bytes with its metadata, in the store or by reading and sending it.

        Raises:
            RefusedError: it was replaced while it was read.
        """
        import obstore  # noqa: PLC0415

        if size > COPY_BYTES:
            self._send_again(source, goal, path)
            return
        with self._converted("rename", path):
            obstore.copy(self._bulk, source, goal)

    def _send_again(self, source: str, goal: str, path: bytes) -> None:
        found = self.head(source, path)
        if found is None:
            raise MissingError("rename", path, "not there")
        meta, attributes = found
        size, etag = meta["size"], meta["e_tag"]
        pieces = (
            self.range(source, path, at, min(size, at + WHOLE_BYTES), etag)
            for at in range(0, size, WHOLE_BYTES)
        )
        self.put_pieces(goal, path, pieces, attributes)

    def delete(self, keys: Sequence[str], path: bytes) -> None:
        """Delete objects; those that are not there are fine."""
        import obstore  # noqa: PLC0415

        if keys:
            with suppress(MissingError), self._converted("remove", path):
                obstore.delete(self._store, list(keys))

    @contextmanager
    def _converted(self, operation: str, path: bytes) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except FileNotFoundError as error:
            raise self._absent(operation, path, error) from error
        except BaseError as error:
            raise self._failed(operation, path, error) from error
        except UnlistableError as error:
            raise DeniedError(operation, path, str(error), "delete or rename that object") from error
        except ValueError as error:
            raise DeniedError(operation, path, _words(error), "rename the file") from error
        except OSError as error:  # from a list that we requested ourselves
            raise self._failed(operation, path, error) from error

    def _absent(self, operation: str, path: bytes, error: Exception) -> TargetError:
        if _code(error) not in _NO_BUCKET:
            return MissingError(operation, path, "not there")
        what = f"there is no bucket {self._name}"
        return NoRootError(operation, b"", what, "correct REMOTE_SETTING.bucket, or make it")

    def _failed(self, operation: str, path: bytes, error: Exception) -> TargetError:  # noqa: PLR0911
        """Our error for one of the library's."""
        from obstore import exceptions  # noqa: PLC0415

        code, status, why = _code(error), _status(error), _code(error) or _words(error)
        changed = isinstance(error, (exceptions.AlreadyExistsError, exceptions.PreconditionError))
        if changed or isinstance(error, exceptions.NotSupportedError) or status == 501:  # noqa: PLR2004
            return RefusedError(operation, path, why, changed=changed)
        if code in _NO_BUCKET:
            return self._absent(operation, path, error)
        if isinstance(error, (exceptions.UnauthenticatedError, exceptions.PermissionDeniedError)):
            return self._denied(operation, path, code, why)
        if code in _LOGIN_CODES or any(word in str(error) for word in _CREDENTIALS):
            return LoginError("log in", b"", f"{self._name}: {why}", LOGIN_HINT)
        if code in _FULL_CODES or status == 507:  # noqa: PLR2004 - Insufficient Storage
            return FullError(operation, path, why, "raise the bucket's quota, or free space")
        if 300 <= status < 500 and status not in _LATER:  # noqa: PLR2004
            hint = "correct REMOTE_SETTING.region" if status < 400 else ""  # noqa: PLR2004
            return TransientError(operation, path, why, hint)
        return LinkError(operation, path, why, "is the store up, and REMOTE_SETTING.endpoint right?")

    def _denied(self, operation: str, path: bytes, code: str, why: str) -> TargetError:
        if code == "RequestTimeTooSkewed":
            return LinkError(operation, path, why, "this machine's clock is wrong")
        if code in _LOGIN_CODES or not code:
            return LoginError("log in", b"", f"{self._name}: {why}", LOGIN_HINT)
        hint = "allow these credentials to list the bucket, and to read, write and delete objects"
        if operation == "list":
            return BlockedError(operation, path, f"{self._name}: {why}", hint)
        return DeniedError(operation, path, why, hint)


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _status(error: Exception) -> int:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def _words(error: Exception) -> str:
    """The first line of an error, without the query of addresses, which may be a signature."""
    line = str(error).split("\n", 1)[0].strip()
    return re.sub(r"\?[^\s\"']*", "", line)[:300]
