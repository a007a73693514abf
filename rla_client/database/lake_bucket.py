"""The lake of a bucket that is the master: the same parts and manifest, as objects in `.rla/lake/` there.

Nothing is kept on the machine that builds. What a build or a query needs is fetched into a folder that is
a small data root (`BucketLake.root`), where `build`, `verify` and `sql` find it as they do on a disk.

A run's signature is a digest of the names, sizes and etags of its log objects, so one list of `log/` (a
request for 1,000 objects) tells what changed. In the lake are runs whose log objects are whole: the agent
has written `SHA256SUMS` behind them, or nobody has written to them for `QUIET_S` and nothing was appended.
What is appended to a live run lies in `.rla-parts/` until it ends; such a run is left out.

The manifest is replaced last, on condition that it is the one that the build began with. So a build that is
killed leaves objects that do not count, and of two builds at once one is refused. What does not count is
deleted by a later build, `KEEP_S` after it was written: another build, or a reader, may need it until then.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from rla_client.config.schema import BUCKET_ADVICE
from rla_client.contract.bucket_list import UnlistableError, list_all
from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError, UnsafeNameError, extra
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CODE,
    DEFAULT_LOG_TYPES,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
)
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.run_index import RunIndex
from rla_client.contract.safe_names import check_relative
from rla_client.database.catalogue import COLUMNS, catalogue_row
from rla_client.database.csv_table import PROGRESS_FILE
from rla_client.database.lake import LAKE, MANIFEST, NAMES, TABLES, Builder, Lake, Part, PartRuns, read_parts
from rla_client.database.lake_build import (
    QUIET_S,
    Ended,
    Findings,
    Progress,
    Report,
    Work,
    bad_parts,
    fill,
    wrong_runs,
)
from rla_client.database.lake_tables import MAX_CSV_BYTES, MAX_FILES, SYSTEM_FILE, RunData, Session, views_in
from rla_client.database.records import NOTE_FILE

if TYPE_CHECKING:
    import duckdb
    from obstore import ObjectMeta, PutMode

    from rla_client.database.sql_query import Clock

KEEP_S: Final = 86400.0
THREADS: Final = 16
MAX_STAGED_BYTES: Final = 64 << 20  # of one object: a progress.csv has at most MAX_CSV_BYTES
PARTS: Final = ".rla-parts"  # see docs/reference/formats.md
SUMS: Final = "SHA256SUMS"
_READ: Final = {RUN_FILE, NOTE_FILE, PROGRESS_FILE, SYSTEM_FILE}  # of a log folder
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_ADVICE: Final = (  # what an error of the library has in it → what to do
    (_NO_BUCKET, "there is no such bucket"),
    (
        ("relative URL without a base", "Unable to recognise URL"),
        "an address is s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
    ),
    (
        ("169.254.169.254", "metadata.google"),
        "credentials come from the environment (AWS_ACCESS_KEY_ID …) or a role",
    ),
    (("error sending request",), "is the store up, and --endpoint right?"),
)
_INDEX_PARTS: Final = 4  # YYYY, MM, DD, name

RunName = tuple[str, str]


class BusyError(DatabaseError):
    """Another build has published since this one began."""


@dataclass(slots=True)
class Objects:
    """What the bucket has of one run: path in the item → object, of the log folder and of all other kinds."""

    log: dict[str, ObjectMeta] = field(default_factory=dict)
    others: list[tuple[str, str, ObjectMeta]] = field(default_factory=list)
    appended: float = 0.0

    @property
    def signature(self) -> str:
        """Changes with each of the log objects."""
        digest = hashlib.sha256()
        for name, meta in sorted(self.log.items()):
            digest.update(f"{name}\0{meta['size']}\0{meta['e_tag']}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:32]

    def ended(self, now: float) -> bool:
        """Whether its objects are whole and nobody writes to them."""
        sums = self.log.get(SUMS)
        if sums is not None:
            return self.appended <= sums["last_modified"].timestamp()
        newest = max((meta["last_modified"].timestamp() for meta in self.log.values()), default=now)
        return not self.appended and now - newest >= QUIET_S


class BucketLake:
    """The lake of one bucket, and the folder `root` with what was fetched of it. For one thread."""

    def __init__(self, address: str, endpoint: str, root: Path) -> None:
        """Fetch the manifest and the list of runs in each part; see `opened`."""
        if "@" in endpoint or "?" in endpoint:  # it would stand in the error
            raise ArgumentError(f"--endpoint: {BUCKET_ADVICE}")
        with extra("bucket", "a lake in a bucket"):
            from obstore.store import from_url
        options: dict[str, Any] = {"client_options": {"allow_http": endpoint.startswith("http://")}}
        if endpoint:
            options["base_url" if address.startswith("gs:") else "endpoint"] = endpoint.rstrip("/")
        with _told(address):
            self._store = from_url(address, **options)
        self.root = root
        self.address = address
        self.left_out: set[str] = set()  # keys that are no file's
        self.etag: str | None = None  # of the manifest; None where the bucket has no lake yet
        found = self.get(f"{LAKE}/{MANIFEST}")
        if found is not None:
            self.etag, data = found
            path = self.root / LAKE / MANIFEST
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.fetch_all((part, "runs") for part in read_parts(self.root))

    def get(self, key: str) -> tuple[str | None, bytes] | None:
        """An object's etag and content; None where there is none."""
        import obstore

        with _told(self.address):
            try:
                found = obstore.get(self._store, key)
                return found.meta["e_tag"], bytes(found.bytes())
            except FileNotFoundError as error:
                if any(code in str(error) for code in _NO_BUCKET):
                    raise
                return None

    def fetch(self, part: Part, name: str) -> None:
        """Have a file of a part in `root`; where the bucket lacks it, reading the part tells."""
        path = self.root / LAKE / part.name / f"{name}.parquet"
        if path.exists():
            return
        found = self.get(f"{LAKE}/{part.name}/{name}.parquet")
        if found is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found[1])

    def fetch_all(self, files: Iterable[tuple[Part, str]]) -> None:
        """Have files of parts in `root`."""
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda one: self.fetch(*one), list(files)))

    def put(self, key: str, data: bytes) -> None:
        """Write an object that nobody else writes."""
        import obstore

        with _told(self.address):
            obstore.put(self._store, key, data)

    def put_manifest(self, data: bytes, *, bare: bool = False) -> None:
        """Replace the manifest that this build began with.

        Args:
            data: the new one.
            bare: name the old one's etag without quotes: Ceph (16.2) knows no others.

        Raises:
            BusyError: there is another one.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        key, etag = f"{LAKE}/{MANIFEST}", self.etag
        mode: PutMode = "create" if etag is None else {"e_tag": etag.strip('"') if bare else etag}
        try:
            with _told(self.address):
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
        with _told(self.address):
            yield from list_all(self._store, prefix, self.left_out.add)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        import obstore

        with _told(self.address):
            if keys:
                obstore.delete(self._store, list(keys))

    def runs(self, now: float) -> tuple[dict[RunName, Objects], int]:
        """Runs that belong into the lake; how many others there are."""
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
        whole = {
            run: one for run, one in found.items() if one.ended(now) and _csv_bytes(one) <= MAX_CSV_BYTES
        }
        return whole, len(found) - len(whole)

    def add_others(self, runs: dict[RunName, Objects]) -> None:
        """List what these runs have beside their logs."""
        for kind in DEFAULT_LOG_TYPES if runs else ():
            if kind == LOG:
                continue
            for meta in self.list(kind):
                item = item_of(meta["path"])
                if item is not None and item[1] in runs and PARTS not in item[2].split("/"):
                    runs[item[1]].others.append((kind, item[2], meta))

    def read(self, table: str, index: str, objects: Objects) -> RunData | None:
        """A run from its objects; None where one of them changed since it was listed.

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
        with TemporaryDirectory(dir=self.root) as folder:
            for meta in wanted:
                if meta["size"] > MAX_STAGED_BYTES:
                    continue
                got = self.get(meta["path"])
                if got is None or got[0] != meta["e_tag"]:
                    return None
                path = Path(folder, *check_relative(_plain(meta["path"])))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(got[1])
            kinds = (
                LOG,
                *(kind for kind in DEFAULT_LOG_TYPES if any(kind == one[0] for one in objects.others)),
            )
            data = RunData(catalogue_row(Path(folder), table, index, kinds), objects.signature)
            fill(Path(folder), data)
        every = [(LOG, name, meta) for name, meta in objects.log.items()] + objects.others
        data.files = [
            (kind, name, meta["size"], meta["last_modified"].timestamp())
            for kind, name, meta in sorted(every, key=lambda one: one[:2])[:MAX_FILES]
        ]
        return data


def item_of(key: str) -> tuple[str, RunName, str] | None:
    """Kind, run and path in the item of an object; of an archive_tester file the path is its name."""
    kind, *parts = _plain(key).split("/")
    for at in range(1, len(parts) - _INDEX_PARTS + 1):
        index = "/".join(parts[at : at + _INDEX_PARTS])
        if kind == ARCHIVE_TESTER:
            index = str(PurePosixPath(index).with_suffix(""))
        if RunIndex.parse(index) is not None:
            path = "/".join(parts[at + _INDEX_PARTS :]) or parts[-1]
            return kind, ("/".join(parts[:at]), index), path
    return None


def _plain(key: str) -> str:
    """The path that a key stands for; `!XX` in it is a byte."""
    raw = re.sub(rb"!([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), key.encode())
    return raw.decode("utf-8", "surrogateescape")


def _is_parameter(name: str) -> bool:
    return name.startswith(f"{HYPARAM_FILE_NAME}.")


def _csv_bytes(objects: Objects) -> int:
    meta = objects.log.get(PROGRESS_FILE)
    return meta["size"] if meta is not None else 0


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Errors of the store's library as ours, but those that callers expect."""
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except (BaseError, UnlistableError, ValueError, OSError) as error:
        text = str(error).strip()
        hints = [f"\nhint: {hint}" for words, hint in _ADVICE if any(word in text for word in words)]
        raise DatabaseError(f"{address}: {text.partition(chr(10))[0][:300]}{''.join(hints[:1])}") from error


@contextmanager
def opened(address: str, endpoint: str = "") -> Iterator[BucketLake]:
    """The lake of `s3://bucket/prefix`, `gs://…` or `az://…`; credentials come from the environment.

    Raises:
        DatabaseError: the bucket cannot be read.
        MissingExtraError: the library is not installed.
    """
    with TemporaryDirectory(prefix="rla-lake-") as folder:
        yield BucketLake(address, endpoint, Path(folder))


class BucketBuilder(Builder):
    """Writes parts into a bucket, and here, where the build reads them."""

    def __init__(self, lake: BucketLake) -> None:
        super().__init__(lake.root)
        self._lake = lake

    def write(self, part: str, name: str, write: Callable[[BinaryIO], None]) -> tuple[int, int]:
        """Write a file of a new part."""
        made = super().write(part, name, write)
        key = f"{LAKE}/{part}/{name}.parquet"
        self._lake.put(key, (self._lake.root / key).read_bytes())
        return made

    def fetch(self, part: Part, name: str) -> None:
        """Have a file of an old part here."""
        self._lake.fetch(part, name)

    def put_manifest(self, data: bytes) -> None:
        """Replace the bucket's manifest, then the one here.

        Raises:
            BusyError: another build has done so since this one began.
        """
        self._lake.put_manifest(data)
        super().put_manifest(data)

    def sweep_bucket(self, now: float) -> None:
        """Delete objects of parts that do not count and are `KEEP_S` old."""
        keep = {part.name for part in self.parts}
        self._lake.delete(
            [
                meta["path"]
                for meta in self._lake.list(f"{LAKE}/{TABLES}")
                if meta["path"].removeprefix(f"{LAKE}/").rpartition("/")[0] not in keep
                and now - meta["last_modified"].timestamp() > KEEP_S
            ]
        )


def build_bucket(lake: BucketLake, now: float, progress: Progress | None = None) -> Report | None:
    """Bring a bucket's lake up to its runs; None where another build has published meanwhile.

    Raises:
        DatabaseError: the bucket cannot be read or written; what counted before still does.
    """
    begin = time.perf_counter()
    runs, _ = lake.runs(now)
    ended: dict[str, list[Ended]] = {}
    for (table, index), objects in sorted(runs.items()):
        ended.setdefault(table, []).append(Ended(index, objects.signature, _csv_bytes(objects)))
    held = Lake(lake.root).signatures()
    lake.add_others({run: one for run, one in runs.items() if held.get(run) != one.signature})
    report = Report()
    builder = BucketBuilder(lake)
    work = Work(lake.root, ended, partial(_read_runs, lake, runs, report), builder, now, report)
    try:
        while not work.carry_out(Lake(lake.root), progress):
            runs, _ = lake.runs(now)
            lake.add_others(runs)
        builder.sweep_bucket(now)
    except BusyError:
        return None
    report.problems += [f"an object, for no file has such a key: {key!r}" for key in sorted(lake.left_out)]
    report.runs = sum(part.runs for part in builder.parts)
    report.took_s = time.perf_counter() - begin
    return report


def _read_runs(
    lake: BucketLake, runs: dict[RunName, Objects], report: Report, table: str, wanted: Sequence[Ended]
) -> Iterator[RunData]:
    def read(one: Ended) -> RunData | str | None:
        try:
            return lake.read(table, one.index, runs[table, one.index])
        except (BrokenFileError, OSError, UnicodeEncodeError, UnsafeNameError) as error:
            return f"{table}/{one.index}: {error}"

    with ThreadPoolExecutor(THREADS) as pool:
        for data in pool.map(read, wanted):
            if isinstance(data, str):
                report.problems.append(data)
            elif data is not None:
                yield data


def verify_bucket(lake: BucketLake, now: float, progress: Progress | None = None) -> Findings:
    """Compare each run of a bucket's lake with its objects; parts that are wrong leave the lake.

    Raises:
        BusyError: they could not be taken out, because another build published meanwhile.
        DatabaseError: the bucket cannot be read or written.
    """
    found = Findings()
    runs, _ = lake.runs(now)
    lake.add_others(runs)
    local = Lake(lake.root)

    def fetched() -> Generator[PartRuns, None, None]:
        parts = list(local.parts)
        for done, one in enumerate(parts):
            if progress is not None:
                progress(done, len(parts))
            lake.fetch_all((one.part, name) for name in NAMES)
            try:
                yield one
            finally:
                shutil.rmtree(lake.root / LAKE / one.part.name)

    def check(one: PartRuns) -> list[str]:
        return wrong_runs(lake.root, one, partial(_reread, lake, runs, one), found)

    with closing(fetched()) as parts:
        bad = bad_parts(local, parts, check, found)
    if bad:
        builder = BucketBuilder(lake)
        builder.publish([part for part in builder.parts if part.name not in bad])
        found.dropped = True
    return found


def _reread(
    lake: BucketLake, runs: dict[RunName, Objects], one: PartRuns, place: int, stored: Sequence[Any]
) -> RunData | None:
    objects = runs.get((one.part.table, one.indexes[place]))
    if objects is None or objects.signature != one.signatures[place]:
        return None
    data = lake.read(one.part.table, one.indexes[place], objects)
    if data is not None:  # no signature covers the kinds
        at = COLUMNS.index("kinds")
        data.row = (*data.row[:at], stored[0][2 + at], *data.row[at + 1 :])
    return data


def query_bucket(
    lake: BucketLake, query: str, now: float, timing: Clock
) -> tuple[duckdb.DuckDBPyConnection, int]:
    """Run one SELECT over the runs that a bucket's lake holds as they are; and how many runs it lacks.

    Raises:
        As `Database.sql`.
    """
    if lake.etag is None:
        raise DatabaseError(
            f"{lake.address} has no lake\nhint: is the prefix right? `rla lake build --bucket` makes one"
        )
    runs, others = lake.runs(now)
    signed = [(table, index, one.signature, None) for (table, index), one in runs.items()]
    held = Lake(lake.root)
    inside = held.signatures()
    lake.fetch_all((one.part, name) for one in held.parts for name in views_in(query))
    signed = [one for one in signed if inside.get((one[0], one[1])) == one[2]]
    session = Session(lake.root, query)
    session.fill(None, signed, now)
    return session.execute(timing), len(runs) - len(signed) + others
