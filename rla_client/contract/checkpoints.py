r"""Checkpoint files, as client and agent treat them: format, age, which may go, which are elsewhere, whose.

*Format*. A `.pt` file is torch's zip of stored (uncompressed) records, which `TorchZip` writes from bytes,
without torch and without unpickling anything::

    archive/data.pkl        the skeleton pickle
    archive/byteorder       "little" or "big"
    archive/data/<key>      the bytes of storage <key>
    archive/version         "3\n", torch's number of this format

Each record's data begins at a multiple of ALIGNMENT, by an extra field of zeros in its header, so
that `torch.load(mmap=True)` can use a map of the file as it is. The bytes are a pure function of
what is added: dates are fixed, nothing is random. `.format_version` is left out on purpose: with it
torch computes record offsets by its own writer's rules instead of reading the directory.

*Age*. Time-steps may begin again within a run (stages of a curriculum, one `learn` after another), so the
highest is not the newest. Our files carry a stamp with the order of their saves, which no copy, pull or move
changes; a note (below) repeats it. Files without one (of the original, of other programs) are ordered by
time-step where there are no others, as the original does, else they stand among the others by the time of
their last change.

*Which may go*. The stamps in the files of one name say. Before a file goes, a line of `.rla-dropped` beside
it names it with its modification time: so the replicator can tell it from one that the user removed
(`replicate_retention: mirror`). The file never goes to the master. With the checkpoint goes what `.resume`
holds of it, and nothing else: a program that is ahead of the agent may already have saved this time-step once
more (time-steps begin again), and its state has the same name. So a state says of which save it is, and the
name of its arrays does.

*Which are elsewhere*. Of each file that `rla-agent prune` took off this machine a small note stays beside
where the file was, `<folder>/.rla-pruned/<name>.json`: where on the master it lies, its size, SHA-256
and time. It is written (durable) before the file goes and taken away after the file is back, so at
each moment the file is here or a note says where it is. A note beside a file that is here says
nothing. Notes are never replicated. A copy of an item takes its notes along; `path` still leads to
the right file.

*Whose*. A mark in an item's folder says that files in it came from the master or from a copied spool.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import msgpack

from rla_client.contract.errors import BrokenFileError, RemoteProtocolError
from rla_client.contract.files import (
    READ_FLAGS,
    TEMP_PREFIX,
    file_mode,
    held_folder,
    read_small,
    write_atomic,
)
from rla_client.contract.jobs import ALIGNMENT, STAMP_MAX_BYTES, STAMP_RECORD, Retention, Stamp, badness
from rla_client.contract.layout import (
    CHECKPOINT,
    LOG,
    MAX_STATE_BYTES,
    OTHER_RESULTS,
    RESUME_FOLDER,
    TMP_DATA,
    arrays_name,
)

if TYPE_CHECKING:
    from typing_extensions import Self

ZIP_TOP = "archive"  # folder in the zip file that a `.pt` is
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # of its entries: equal content gives equal bytes
TORCH_FORMAT = b"3\n"
_LOCAL_HEADER_BYTES = 30
_ZIP64_EXTRA_BYTES = 20
_ZIP64_FROM = 1 << 30  # well below where zipfile would ask for it by itself
_PADDING_ID = 0x4246  # the id that torch's writer uses, "FB"
_EXTRA_HEADER = struct.Struct("<HH")
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_DIRECTORY_ENTRY = struct.Struct("<4s6H3L5H2L")
_ENTRY_MAGIC = b"PK\x01\x02"
_TAIL_BYTES = 1 << 10  # the last entry of the directory, which is the stamp's, and the end of the zip
PRUNED_FOLDER = ".rla-pruned"
DROPPED_NOTE: Final = ".rla-dropped"
FETCHED_MARK = ".rla-fetched"  # in the log folder of a run that was fetched to be gone on with
# In an item's folder, where files of it came from the master or from a copied spool: that it is there counts.
# Earlier releases gave FETCHED_MARK to a checkpoint folder for this.
FOREIGN_MARK: Final = ".rla-foreign"
MARKED_KINDS: Final = (LOG, CHECKPOINT, OTHER_RESULTS, TMP_DATA)  # kinds in which pickles may lie
PICKLE_ENDINGS: Final = (".pkl", ".pt")  # of files that may be unpickled in full
OWN_NAMES: Final = frozenset((PRUNED_FOLDER, FETCHED_MARK, FOREIGN_MARK, DROPPED_NOTE))  # never sent
NOTE_ENDING = ".json"
MAX_NAME_BYTES = 250  # of a file, so that its note's name is one too
MAX_NOTE_BYTES = 16 << 10
PRUNABLE = (CHECKPOINT, OTHER_RESULTS, TMP_DATA)  # kinds whose files may be on the master alone
# Of a resume state, plain data and arrays each; arrays beyond lie beside it, plain data in the archive only.
MAX_DROPPED_BYTES: Final = 1 << 20  # some 15,000 files of one item; then the older half is forgotten


class TorchZip:
    """One file in the making: a context whose end writes the directory that makes it a zip."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._file = file

    def add(self, name: str, size: int, pieces: Iterable[bytes | memoryview]) -> None:
        """Write one record of `size` bytes that come in pieces; CRC-32 is computed on the way.

        Raises:
            ValueError: the pieces are not `size` bytes in all.
            OSError: the file cannot be written.
        """
        info = zipfile.ZipInfo(f"{ZIP_TOP}/{name}", ZIP_DATE)
        info.compress_type = zipfile.ZIP_STORED
        large = size >= _ZIP64_FROM
        info.extra = self._padding(len(info.filename.encode()), large=large)
        written = 0
        with self._zip.open(info, "w", force_zip64=large) as record:
            for piece in pieces:
                record.write(piece)
                written += len(piece)
        if written != size:
            raise ValueError(f"record {name} has {written} bytes instead of {size}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the directory; after an error only let go of the file."""
        if kind is None:
            self._zip.close()
            return
        with suppress(OSError, ValueError):
            self._zip.close()

    def _padding(self, name_bytes: int, *, large: bool) -> bytes:
        """The extra field after which data begins at a multiple of ALIGNMENT."""
        begin = self._file.tell() + _LOCAL_HEADER_BYTES + name_bytes + _EXTRA_HEADER.size
        begin += _ZIP64_EXTRA_BYTES if large else 0
        zeros = -begin % ALIGNMENT
        return _EXTRA_HEADER.pack(_PADDING_ID, zeros) + bytes(zeros)


# -- which may go ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Saved:
    """One finished checkpoint file of ours."""

    file: str
    stamp: Stamp


def superseded(saved: Sequence[Saved], keep: Retention) -> list[Saved]:
    """The files that `keep` does not hold, oldest first.

    Age is the order of the saves and not the time-step: after a resume at an earlier step the
    newest file may have a lower number than the ones before it.

    Args:
        saved: files of one name and one run, in any order.
        keep: the rules; without `max_to_keep` nothing goes.
    """
    if keep.max_to_keep is None:
        return []
    by_age = sorted(saved, key=lambda entry: entry.stamp.order)
    kept = {entry.file for entry in by_age[-keep.max_to_keep :]}
    if keep.keep_every is not None:
        kept |= {entry.file for entry in by_age if entry.stamp.time_step % keep.keep_every == 0}
    if keep.keep_best is not None:
        metric, mode, count = keep.keep_best
        rated = [entry for entry in by_age if metric in entry.stamp.metrics]
        rated.sort(key=lambda entry: (badness(mode, entry.stamp.metrics[metric]), -entry.stamp.order))
        kept |= {entry.file for entry in rated[:count]}
    return [entry for entry in by_age if entry.file not in kept]


def remove_superseded(folder: Path, name: str, run: str, keep: Retention) -> list[str]:
    """Delete what `keep` does not hold; call it once the newest file is durable.

    Returns:
        File names that were removed. Files without a stamp, or of another run, never are.
    """
    if keep.max_to_keep is None:
        return []
    removed = []
    gone = superseded([saved for saved in list_saved(folder, name) if saved.stamp.run == run], keep)
    note_dropped(folder, [entry.file for entry in gone])
    for entry in gone:
        with suppress(FileNotFoundError):
            (folder / entry.file).unlink()
            removed.append(entry.file)
        with suppress(OSError), held_folder(folder, RESUME_FOLDER) as below:
            _remove_beside(below, Path(entry.file).stem, entry.stamp)
    return removed


def _remove_beside(below: Path, stem: str, stamp: Stamp) -> None:
    """Remove what `.resume` holds of one save. A later one of that time-step may put its state there now."""
    (below / f"{stem}.marks.json").unlink(missing_ok=True)  # written by the job that wrote the checkpoint
    (below / arrays_name(stem, stamp.order)).unlink(missing_ok=True)
    state, taken = below / f"{stem}.state", below / f"{TEMP_PREFIX}{stamp.token}.state"
    if _saved_as(state) not in {stamp.order, None}:
        return
    with suppress(FileNotFoundError):
        state.replace(taken)  # looked at again where nobody can exchange it
        order = _saved_as(taken)
        if order not in {stamp.order, None} and not state.exists():
            taken.replace(state)
            return
        taken.unlink()
        if order is None:
            (below / f"{stem}.arrays").unlink(missing_ok=True)  # as earlier releases name it


def _saved_as(state: Path) -> int | None:
    """The order of the save that a state belongs to; None: an earlier release wrote it, or it is none."""
    try:
        content = msgpack.unpackb(read_small(state, 2 * MAX_STATE_BYTES), strict_map_key=False)
    except (OSError, ValueError, msgpack.UnpackException, BrokenFileError):
        return None
    order = content.get("order") if isinstance(content, dict) else None
    return order if isinstance(order, int) else None


def note_dropped(folder: Path, names: Iterable[str]) -> None:
    """Note that `max_to_keep` is about to drop files of a checkpoint folder.

    Where that cannot be written, or is lost in a power cut, their copies on the master stay.
    """
    lines = []
    for name in names:
        with suppress(OSError):
            lines.append(json.dumps([name, os.lstat(folder / name).st_mtime_ns]).encode() + b"\n")
    if not lines:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with (
        suppress(OSError),
        open(os.open(folder / DROPPED_NOTE, flags, file_mode(folder)), "ab", buffering=0) as file,
    ):
        file.write(b"".join(lines))
        if file.tell() > MAX_DROPPED_BYTES:
            kept = read_small(folder / DROPPED_NOTE, 2 * MAX_DROPPED_BYTES).splitlines(keepends=True)
            write_atomic(folder / DROPPED_NOTE, b"".join(kept[len(kept) // 2 :]), mode=file_mode(folder))


def dropped(folder: Path) -> dict[str, int]:
    """Name → modification time (ns) of the last file of this name that `max_to_keep` dropped here."""
    found = {}
    try:
        lines = read_small(folder / DROPPED_NOTE, 2 * MAX_DROPPED_BYTES).splitlines()
    except (OSError, BrokenFileError):
        return {}
    for line in lines:
        with suppress(ValueError, TypeError, RecursionError):  # a power cut may leave half a line
            name, mtime_ns = json.loads(line)
            if isinstance(name, str) and isinstance(mtime_ns, int):
                found[name] = mtime_ns
    return found


def list_saved(folder: Path, name: str) -> list[Saved]:
    """Files in a checkpoint folder that came of saves of this name."""
    saved = []
    for entry in sorted(os.listdir(folder)):
        if entry.startswith(f"{name}_") and entry.endswith(".pt"):
            stamp = read_stamp(folder / entry)
            if stamp is not None and stamp.name == name:
                saved.append(Saved(entry, stamp))
    return saved


def read_stamp(path: Path) -> Stamp | None:
    """The stamp of a checkpoint file; None when there is no such file or it has none."""
    try:
        with open(os.open(path, READ_FLAGS), "rb", buffering=0) as file:
            return stamp_in(file)
    except (OSError, ValueError):
        return None


def stamp_in(file: RawIOBase) -> Stamp | None:
    """The stamp in an open checkpoint file; None when it has none.

    It is the last record of the zip, so that two short reads find it, however many tensors there are.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return Stamp.decode(_last_record(file))
    except (ValueError, struct.error, RemoteProtocolError):
        pass  # somebody added to the zip
    try:
        with zipfile.ZipFile(BufferedReader(file)) as archive:
            for info in reversed(archive.infolist()):
                if info.filename.split("/", 1)[-1] == STAMP_RECORD and info.file_size <= STAMP_MAX_BYTES:
                    return Stamp.decode(archive.read(info))
    except (ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError, RemoteProtocolError):
        return None
    return None


def _last_record(file: RawIOBase) -> bytes:
    """Content of the zip's last record, where that is a stamp that lies below 4 GiB.

    Raises:
        ValueError, struct.error: it is not.
    """
    size = file.seek(0, os.SEEK_END)
    tail = _read_at(file, max(0, size - _TAIL_BYTES), _TAIL_BYTES)
    at = tail.rfind(_ENTRY_MAGIC)
    if at < 0:
        raise ValueError("no directory of a zip")
    entry = _DIRECTORY_ENTRY.unpack_from(tail, at)
    packing, crc, count, name_bytes, begin = entry[4], entry[7], entry[9], entry[10], entry[16]
    name = tail[at + _DIRECTORY_ENTRY.size :][:name_bytes]
    if packing != zipfile.ZIP_STORED or name.split(b"/", 1)[-1] != STAMP_RECORD.encode():
        raise ValueError("the last record is no stamp")
    if count > STAMP_MAX_BYTES or begin + _LOCAL_HEADER.size > size:
        raise ValueError("a stamp of that size or place is found in another way")
    around = _read_at(file, begin, _LOCAL_HEADER.size + name_bytes + ALIGNMENT + _EXTRA_HEADER.size + count)
    *_, name_bytes, extra_bytes = _LOCAL_HEADER.unpack_from(around)
    data = around[_LOCAL_HEADER.size + name_bytes + extra_bytes :][:count]
    if zlib.crc32(data) != crc:
        raise ValueError("a damaged stamp")
    return data


def _read_at(file: RawIOBase, begin: int, count: int) -> bytes:
    file.seek(begin)
    return file.read(count) or b""


# -- how old they are ---------------------------------------------------------------------------


class SaveTime(NamedTuple):
    """What tells when a checkpoint file was saved.

    Attributes:
        name: of the file.
        time_step: of the run's clock; -1 where the name has none.
        mtime_ns: of its last change, 0 where nobody knows.
        order: of its stamp; None without one.
    """

    name: str
    time_step: int
    mtime_ns: int
    order: int | None


def oldest_first(files: Iterable[SaveTime]) -> list[SaveTime]:
    """Files of one folder in the order of their saves; see *Age* above."""
    found = list(files)
    if all(file.order is None for file in found):
        return sorted(found, key=lambda file: (file.time_step, file.mtime_ns, file.name))
    return sorted(
        found,
        key=lambda file: (file.mtime_ns if file.order is None else file.order, file.time_step, file.name),
    )


def save_time(folder: Path, name: str, time_step: int) -> SaveTime:
    """When a file of a folder was saved, which is there or on the master alone."""
    stamp = read_stamp(folder / name)
    if stamp is not None:
        return SaveTime(name, time_step, 0, stamp.order)
    note = read_note(folder, name)
    if note is not None:
        return SaveTime(name, time_step, note.mtime_ns, note.order)
    try:
        return SaveTime(name, time_step, os.stat(folder / name).st_mtime_ns, None)
    except OSError:
        return SaveTime(name, time_step, 0, None)


def newest_order(folder: Path) -> int:
    """Order of the last of our saves of any name in a checkpoint folder; 0 where there is none."""
    try:
        names = {*os.listdir(folder), *noted_names(folder)}
    except (FileNotFoundError, NotADirectoryError):
        return 0
    orders = (save_time(folder, name, -1).order for name in names if name.endswith(".pt"))
    return max((order for order in orders if order is not None), default=0)


# -- files that are on the master alone ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrunedFile:
    """A file that is on the master alone.

    Attributes:
        path: below the data root here, and below the remote root there.
        size: bytes.
        sha256: of the content, in hex.
        mtime_ns: modification time, to be given back with the content.
        target: the master, `sftp://user@host:port/root`.
        pruned_at: Unix seconds.
        mode: permission bits; None: not noted.
        order: of the checkpoint's stamp; None: it has none, or an earlier release noted it.
    """

    path: str
    size: int
    sha256: str
    mtime_ns: int
    target: str
    pruned_at: float
    mode: int | None = None
    order: int | None = None

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.rpartition("/")[2]


def note_path(folder: str | os.PathLike[str], name: str) -> Path:
    """Where the note of a file of `folder` lies."""
    return Path(folder, PRUNED_FOLDER, name + NOTE_ENDING)


def write_note(folder: str | os.PathLike[str], note: PrunedFile) -> None:
    """Make a note durable.

    Raises:
        OSError: it cannot be written; nothing is noted.
    """
    content = json.dumps({"format": 1, **asdict(note)}, indent=1).encode()
    with held_folder(folder, PRUNED_FOLDER, create=True) as notes:
        write_atomic(notes / (note.name + NOTE_ENDING), content, mode=file_mode(notes))


def drop_note(folder: str | os.PathLike[str], name: str) -> None:
    """The file is back (or never went): take its note away; none there is fine."""
    with suppress(FileNotFoundError, NotADirectoryError), held_folder(folder, PRUNED_FOLDER) as notes:
        (notes / (name + NOTE_ENDING)).unlink()
    with suppress(OSError):  # other notes are in it
        Path(folder, PRUNED_FOLDER).rmdir()


def read_note(folder: str | os.PathLike[str], name: str) -> PrunedFile | None:
    """The note of a file that is not here; None when it is here, or there is no note."""
    if os.path.lexists(os.path.join(folder, name)):
        return None
    try:
        path = note_path(folder, name)
        found = json.loads(read_small(path, MAX_NOTE_BYTES))
        note = PrunedFile(
            str(found["path"]),
            int(found["size"]),
            str(found["sha256"]),
            int(found["mtime_ns"]),
            str(found["target"]),
            float(found["pruned_at"]),
            None if found.get("mode") is None else int(found["mode"]) & 0o777,
            None if found.get("order") is None else int(found["order"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return note if note.name == name else None


def noted_names(folder: str | os.PathLike[str]) -> list[str]:
    """Names with a note in a folder, sorted; also of a file that is about to go or came back just now."""
    try:
        entries = sorted(os.listdir(Path(folder, PRUNED_FOLDER)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    names = [entry.removesuffix(NOTE_ENDING) for entry in entries if entry.endswith(NOTE_ENDING)]
    return [name for name in names if not name.startswith(TEMP_PREFIX)]


def pruned_files(folder: str | os.PathLike[str]) -> list[PrunedFile]:
    """Files of a folder that are on the master alone, by name; [] without any."""
    notes = [read_note(folder, name) for name in noted_names(folder)]
    return [note for note in notes if note is not None]


def pruned_below(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """(bytes, files) below a folder that are on the master alone."""
    size = count = 0
    for here, folders, _ in os.walk(folder):
        if PRUNED_FOLDER in folders:
            folders.remove(PRUNED_FOLDER)
            notes = pruned_files(here)
            size += sum(note.size for note in notes)
            count += len(notes)
    return size, count


# -- what came from elsewhere --------------------------------------------------------------------


def mark_foreign(folder: Path) -> None:
    """Say that a folder of an item, with all below it, holds what another machine wrote.

    Raises:
        OSError: it could not be written.
    """
    if not _is_marked(folder):
        write_atomic(folder / FOREIGN_MARK, b"")


def is_foreign(path: Path) -> bool:
    """Whether a mark in the file's folder, or in one above it, says that another machine wrote the file.

    A mark that another user of this machine made (in /tmp, say) is none.
    """
    files = {Path(os.path.abspath(path)), Path(os.path.realpath(path))}
    return any(
        os.path.lexists(file.parent / FETCHED_MARK) or any(map(_is_marked, file.parents)) for file in files
    )


def _is_marked(folder: Path) -> bool:
    try:
        return os.lstat(folder / FOREIGN_MARK).st_uid in {0, os.geteuid()}
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # nobody can tell
