"""Requests to a bucket by the `obstore` library.

Nothing here knows what a file is: keys and objects. Each request is checked. One that fails is repeated by
the library for `RETRY_S`; what comes out of that is the link's, the operator's or the caller's fault, as
the errors of `target` say it. Paths are for messages.

Credentials come from the library's own chain: environment variables (AWS_…, GOOGLE_…, AZURE_…), a web
identity, the container's or the machine's role. For S3 the shared file of the AWS tools
(`~/.aws/credentials`, or `credentials_file`) is read where the environment has none; for GCS
`credentials_file` is a service account's. None is ever in `rla_config.yaml`, and none is shown.
"""

from __future__ import annotations

import configparser
import hashlib
import importlib.util
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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

    from rla_client.config.schema import RemoteSetting

WHOLE_BYTES: Final = 8 << 20  # of one PUT; a larger file goes as a multipart upload in pieces of this size
PIECES: Final = 4  # of a multipart upload at a time
QUICK_BYTES: Final = 1 << 20  # what has more gets the time of a large piece
QUICK_READ_BYTES: Final = (
    256 << 10
)  # many such reads go at once, also over a slow line; of larger ones PIECES
MAX_LEFT_OUT: Final = 1000  # odd keys that are remembered and named
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
_LATER: Final = {408, 429}  # of the client's faults those that pass
QUICK_S: Final = 25.0  # for a small request: a dead peer is noticed within 30 s
BULK_S: Final = 300.0  # for 8 MiB: 110 kB/s with four at a time
RETRY_S: Final = 20.0  # of a request that failed; then the link counts as down
RETRIES: Final = 3
CONNECT_S: Final = 10.0
DEFAULT_REGION: Final = "us-east-1"
log = logging.getLogger("rla_agent.replicate")


def open_store(remote: RemoteSetting) -> Bucket:
    """Open the bucket of a REMOTE_SETTING.

    Raises:
        BlockedError: the library is not installed, no bucket is named, or the settings are wrong.
    """
    if importlib.util.find_spec("obstore") is None:
        what = f"file_transfer_protocol: {remote.file_transfer_protocol} needs the library obstore"
        raise BlockedError("connect", b"", what, "pip install 'rla-agent[bucket]', then: rla-agent restart")
    if not remote.bucket:
        raise BlockedError("connect", b"", "REMOTE_SETTING.bucket is empty", "name the bucket there")
    store, bulk = (_store(remote, seconds) for seconds in (QUICK_S, BULK_S))
    return Bucket(store, bulk, bucket_name(remote))


def bucket_name(remote: RemoteSetting) -> str:
    """`s3://bucket/prefix`, with the endpoint where one is named; no secrets."""
    at = remote.endpoint.partition("://")[2].rstrip("/")
    root = remote.remote_data_root.strip("/")
    where = f"{at}/{remote.bucket}" if at else remote.bucket
    return f"{remote.file_transfer_protocol}://{where}{'/' if root else ''}{root}"


def _store(remote: RemoteSetting, timeout_s: float) -> ObjectStore:
    from obstore import store  # noqa: PLC0415 - an extra, and only this needs it
    from obstore.exceptions import BaseError  # noqa: PLC0415

    common: dict[str, Any] = {
        "client_options": {
            "allow_http": remote.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=timeout_s),
            "user_agent": "rla-agent",
        },
        "retry_config": {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_S),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4)},
        },
    }
    try:
        if remote.file_transfer_protocol == "gcs":
            return store.GCSStore(remote.bucket, **_gcs(remote), **common)
        if remote.file_transfer_protocol == "azure":
            where: dict[str, Any] = {"endpoint": remote.endpoint.rstrip("/")} if remote.endpoint else {}
            return store.AzureStore(remote.bucket, **where, **common)
        return store.S3Store(remote.bucket, **_s3(remote), **common)
    except (BaseError, ValueError, OSError) as error:
        what = str(error).split("\n", 1)[0][:300]
        raise BlockedError("connect", b"", what, "correct REMOTE_SETTING, or the credentials") from error


def _s3(remote: RemoteSetting) -> dict[str, Any]:
    settings: dict[str, Any] = _shared_credentials(remote)
    if remote.endpoint:
        settings["endpoint"] = remote.endpoint.rstrip("/")
    region = remote.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    settings["region"] = region or DEFAULT_REGION
    return settings


def _gcs(remote: RemoteSetting) -> dict[str, Any]:
    settings = {}
    if remote.endpoint:
        settings["base_url"] = remote.endpoint.rstrip("/")
    if remote.credentials_file:
        settings["service_account"] = str(_private(remote.credentials_file))
    return settings


def _shared_credentials(remote: RemoteSetting) -> dict[str, str]:
    """What the file of the AWS tools says, where it is named or the environment has none."""
    named = remote.credentials_file
    if not named and (os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_ROLE_ARN")):
        return {}
    usual = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    path = _private(named) if named else Path(os.path.expanduser(usual))
    if not path.is_file():
        return {}
    profile = remote.username or os.environ.get("AWS_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        what = f"{path} cannot be read as a file of the AWS tools"  # no line of it is shown
        raise BlockedError("log in", b"", what, "lines: [default], aws_access_key_id = …") from error
    if not parser.has_section(profile):
        if not named and not remote.username:
            return {}
        raise BlockedError("log in", b"", f"{path} has no section [{profile}]", "name one in username")
    names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
    names["aws_session_token"] = "session_token"  # noqa: S105 - a key's name
    section = parser[profile]
    return {goal: section[name].strip() for name, goal in names.items() if section.get(name)}


def _private(name: str) -> Path:
    """A named file of credentials, which nobody else may read."""
    path = Path(os.path.expanduser(name))
    try:
        mode = path.stat().st_mode
    except OSError as error:
        what = f"credentials_file {path} cannot be read"
        raise BlockedError("log in", b"", what, "check the name and its permissions") from error
    if mode & 0o077:
        raise BlockedError("log in", b"", f"{path} is open to other users", f"run: chmod 600 {path}")
    return path


class RefusedError(TransientError):
    """A condition does not hold (`changed`), or the server knows none."""

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
        self.left_out: dict[str, None] = {}  # keys that are no file's

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
        """All objects whose keys begin with `key/`, but for odd ones."""
        with self._converted("list", path):
            return [*list_all(self._store, key, self._leave_out)]

    def folder(self, key: str, path: bytes) -> ListResult[list[ObjectMeta]]:
        """Objects directly below `key/`, and the first components of what is further below."""
        with self._converted("list", path):
            return list_folder(self._store, key, self._leave_out)

    def _leave_out(self, key: str) -> None:
        """Name an object that the library cannot: it is nobody's file, and costs no other."""
        if key not in self.left_out and len(self.left_out) < MAX_LEFT_OUT:
            self.left_out[key] = None
            log.info("%s: an object is left out, for no file has such a key: %r", self._name, key)

    def put(
        self, key: str, path: bytes, data: bytes, attributes: Attributes | None, mode: PutMode | None
    ) -> str | None:
        """One PUT; see that all of it has arrived; its etag.

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
                raise  # else it holds after all: Ceph (16.2) knows only etags without their quotes
            mode = {"e_tag": etag if bare else etag.strip('"')}
        made = self._put(key, path, data, attributes, mode)
        self._bare_etags = not bare  # so this store wants them
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
        """Half a body must not count.

        S3 answers with the MD5. Where the answer is no such (encryption with keys of one's own, GCS, Azure),
        the size is looked at once, and the store's own check of what it gets must do then.
        """
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if not self._md5_etags or (etag or "").strip('"') == digest:
            return
        found = self.head(key, path)
        if found is None or found[0]["size"] != len(data):
            raise TransientError("send", path, "the bucket does not hold what was sent")
        self._md5_etags = False

    def heeds_conditions(self, key: str, path: bytes) -> bool:
        """Whether the store refuses to make an object that is there; `key` is made for that, and deleted."""
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
        """The pieces, each made in a thread of its own: the library's own must not send requests itself."""
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
            RefusedError: it has not that etag any more.
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
        """Copy an object of `size` bytes with its metadata: the store does, or it is read and sent again.

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
        except OSError as error:  # of a list that the library did not ask for
            raise self._failed(operation, path, error) from error

    def _absent(self, operation: str, path: bytes, error: Exception) -> TargetError:
        if _code(error) not in _NO_BUCKET:
            return MissingError(operation, path, "not there")
        what = f"there is no bucket {self._name}"
        return NoRootError(operation, b"", what, "correct REMOTE_SETTING.bucket, or make it")

    def _failed(self, operation: str, path: bytes, error: Exception) -> TargetError:  # noqa: PLR0911
        """What an error of the library means."""
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
    """The first line of an error, without what stands behind `?` in addresses: it may be a signature."""
    line = str(error).split("\n", 1)[0].strip()
    return re.sub(r"\?[^\s\"']*", "", line)[:300]
