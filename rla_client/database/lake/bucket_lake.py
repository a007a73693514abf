"""Lake of a bucket.

Its parts and manifest are those of a lake on a disk, as objects below `.rla/lake/`. What a build or a
query needs is fetched into a local folder laid out as a data root (`BucketLake.root`), which `build`,
`verify` and `sql` read like any other.

A run's signature is a digest of the names, sizes and etags of its log objects, so one listing of `log/`
shows what changed. The lake holds runs with complete log objects: the agent has written `SHA256SUMS` last,
or nothing was written for `QUIET_S` and nothing was appended. Rows appended to a live run lie in
`.rla-parts/` until the run ends; such a run is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from rla_client.config.schema import BUCKET_ADVICE
from rla_client.contract.bucket_list import list_all
from rla_client.contract.errors import ArgumentError, DatabaseError, extra
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CODE,
    DEFAULT_LOG_TYPES,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    SAMPLES,
)
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.safe_names import check_relative
from rla_client.database.catalogue import catalogue_row
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.lake.build import fill
from rla_client.database.lake.manifest import LAKE, MANIFEST, LakePart, read_parts
from rla_client.database.lake.run_tables import MAX_CSV_BYTES, MAX_FILES, SYSTEM_FILE, LakeRun
from rla_client.database.records.record_reader import NOTE_FILE

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode

from rla_client.database.lake.bucket_errors import NO_BUCKET, bucket_errors
from rla_client.database.lake.bucket_objects import (
    MAX_STAGED_BYTES,
    PARTS,
    Objects,
    RunName,
    csv_bytes,
    item_of,
    plain_path,
)

THREADS: Final = 16
_READ: Final = {RUN_FILE, NOTE_FILE, PROGRESS_FILE, SYSTEM_FILE}  # of a log folder


class BusyError(DatabaseError):
    """Another build has published a manifest since this one began."""


class BucketLake:
    """The lake of one bucket, with the folder `root` of what was fetched from it. Not thread-safe."""

    def __init__(self, address: str, endpoint: str, root: Path) -> None:
        """Fetch the manifest and the list of runs in each part; see `opened`."""
        if "@" in endpoint or "?" in endpoint:  # a login or key in it would appear in error messages
            raise ArgumentError(f"--endpoint: {BUCKET_ADVICE}")
        with extra("bucket", "a lake in a bucket"):
            from obstore.store import from_url
        options: dict[str, Any] = {"client_options": {"allow_http": endpoint.startswith("http://")}}
        if endpoint:
            options["base_url" if address.startswith("gs:") else "endpoint"] = endpoint.rstrip("/")
        with bucket_errors(address):
            self._store = from_url(address, **options)
        self.root = root
        self.address = address
        self.left_out: set[str] = set()  # keys that are no path of a file
        self.etag: str | None = None  # of the manifest; None where the bucket has no lake yet
        found = self.get(f"{LAKE}/{MANIFEST}")
        if found is not None:
            self.etag, data = found
            path = self.root / LAKE / MANIFEST
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.fetch_all((part, "runs") for part in read_parts(self.root))

    def get(self, key: str) -> tuple[str | None, bytes] | None:
        """An object's etag and content; None if there is no such object."""
        import obstore

        with bucket_errors(self.address):
            try:
                found = obstore.get(self._store, key)
                return found.meta["e_tag"], bytes(found.bytes())
            except FileNotFoundError as error:
                if any(code in str(error) for code in NO_BUCKET):
                    raise
                return None

    def fetch(self, part: LakePart, name: str) -> None:
        """Fetch a file of a part into `root`; if the bucket lacks it, reading the part reports that."""
        path = self.root / LAKE / part.name / f"{name}.parquet"
        if path.exists():
            return
        found = self.get(f"{LAKE}/{part.name}/{name}.parquet")
        if found is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found[1])

    def fetch_all(self, files: Iterable[tuple[LakePart, str]]) -> None:
        """Fetch files of parts into `root`, several at a time."""
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda one: self.fetch(*one), list(files)))

    def put(self, key: str, data: bytes) -> None:
        """Write an object that no other process writes."""
        import obstore

        with bucket_errors(self.address):
            obstore.put(self._store, key, data)

    def put_manifest(self, data: bytes, *, bare: bool = False) -> None:
        """Replace the manifest, if it is still the one that this build began with.

        Args:
            data: the new manifest.
            bare: pass the old manifest's etag without quotes, the only form that Ceph 16.2 accepts.

        Raises:
            BusyError: another build has replaced it.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        key, etag = f"{LAKE}/{MANIFEST}", self.etag
        mode: PutMode = "create" if etag is None else {"e_tag": etag.strip('"') if bare else etag}
        try:
            with bucket_errors(self.address):
                made = obstore.put(self._store, key, data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as error:
            found = self.get(key) if etag is not None and not bare else None
            if found is None or found[0] != etag:
                raise BusyError("another build has published meanwhile") from error
            self.put_manifest(data, bare=True)
        else:
            self.etag = made["e_tag"]

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """All objects whose keys begin with `prefix/`."""
        with bucket_errors(self.address):
            yield from list_all(self._store, prefix, self.left_out.add)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        import obstore

        with bucket_errors(self.address):
            if keys:
                obstore.delete(self._store, list(keys))

    def runs(self, now: float) -> tuple[dict[RunName, Objects], int]:
        """Runs that belong into the lake, and the number of others."""
        found: dict[RunName, Objects] = {}
        for meta in self.list(LOG):
            item = item_of(meta["path"])
            if item is None:
                continue
            objects = found.setdefault(item[1], Objects())
            if PARTS in item[2].split("/"):
                objects.appended = max(objects.appended, meta["last_modified"].timestamp())
            else:
                objects.log[item[2]] = meta
        whole = {run: one for run, one in found.items() if one.ended(now) and csv_bytes(one) <= MAX_CSV_BYTES}
        return whole, len(found) - len(whole)

    def add_samples(self, runs: dict[RunName, Objects]) -> None:
        """Add to these runs their objects of samples."""
        for meta in self.list(SAMPLES) if runs else ():
            item = item_of(meta["path"])
            if item is not None and item[1] in runs and PARTS not in item[2].split("/"):
                runs[item[1]].samples[item[2]] = meta

    def add_others(self, runs: dict[RunName, Objects]) -> None:
        """Add to these runs their objects of all other kinds."""
        for kind in DEFAULT_LOG_TYPES if runs else ():
            if kind in {LOG, SAMPLES}:
                continue
            for meta in self.list(kind):
                item = item_of(meta["path"])
                if item is not None and item[1] in runs and PARTS not in item[2].split("/"):
                    runs[item[1]].others.append((kind, item[2], meta))

    def read(self, table: str, index: str, objects: Objects) -> LakeRun | None:
        """A run read from its objects; None if one of them has changed since the listing.

        Raises:
            BrokenFileError, OSError, UnicodeEncodeError, UnsafeNameError: the lake cannot hold it.
        """
        check_relative(f"{table}/{index}")
        wanted = [meta for name, meta in objects.log.items() if name in _READ or _is_parameter(name)]
        wanted += [
            meta
            for kind, name, meta in objects.others
            if kind == ARCHIVE_TESTER or (kind in {CODE, HYPARAMETER} and _is_parameter(name))
        ]
        wanted += objects.samples.values() if objects.samples_signature else ()
        with TemporaryDirectory(dir=self.root) as folder:
            for meta in wanted:
                if meta["size"] > MAX_STAGED_BYTES:
                    continue
                got = self.get(meta["path"])
                if got is None or got[0] != meta["e_tag"]:
                    return None
                path = Path(folder, *check_relative(plain_path(meta["path"])))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(got[1])
            found = {kind for kind, _, _ in objects.others} | ({SAMPLES} if objects.samples else set())
            kinds = (LOG, *(kind for kind in DEFAULT_LOG_TYPES if kind in found))
            data = LakeRun(catalogue_row(Path(folder), table, index, kinds), objects.signature)
            data.samples_signature = objects.samples_signature
            fill(Path(folder), data)
        every = [
            *((LOG, name, meta) for name, meta in objects.log.items()),
            *((SAMPLES, name, meta) for name, meta in objects.samples.items()),
            *objects.others,
        ]
        data.files = [
            (kind, name, meta["size"], meta["last_modified"].timestamp())
            for kind, name, meta in sorted(every, key=lambda one: one[:2])[:MAX_FILES]
        ]
        return data


def _is_parameter(name: str) -> bool:
    return name.startswith(f"{HYPARAM_FILE_NAME}.")


@contextmanager
def opened(address: str, endpoint: str = "") -> Iterator[BucketLake]:
    """The lake of `s3://bucket/prefix`, `gs://…` or `az://…`; credentials come from the environment.

    Raises:
        DatabaseError: the bucket cannot be read.
        MissingExtraError: the library is not installed.
    """
    with TemporaryDirectory(prefix="rla-lake-") as folder:
        yield BucketLake(address, endpoint, Path(folder))
