"""The launching repository as it was: captured before the experiment starts, restored by hash.

`capture` writes `launch_archive.tar`, whole, before it returns, and `launch_manifest.json` with
the SHA-256 of each file. A process of its own, which outlives this one, then turns the tar into
`launch_archive.tar.xz` and removes it; small archives are compressed at once. So at any moment
one of the two is there and readable; `restore` takes either.

What goes in: the repository's code (see below), less files of 8 MiB and more, and less what the code
backup of items takes for secrets (`select.secrets_among`). Without a
repository: the launcher, modules beside it (in a home folder or one for temporary files: those that are
imported), and packages beside it that it has imported. A repository that git did not list is not
archived in part: that is an error.

The repository's code is what git tracks (submodules too) and what it does not ignore. Of the untracked
files no code are those of data roots (folders that look like one, also where git does not ignore them),
of `data/local`, of experiments, virtual environments and caches, and what `rla plot` and `rla export`
wrote (`select.note_written`): they neither go into archives nor make a commit `-dirty`. An untracked
launcher that lies among data itself, as the code of a rerun does, is none of the repository's. Where the
repository is a home folder (somebody keeps settings with git) untracked files are only code if this
program runs them.

Git is asked with a deadline and never fatal. What it did not tell is None, and never taken for "nothing".
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import lzma
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla_client.code.secrets import ask_git
from rla_client.code.select import (
    DATA_ROOT_MARKS,
    DATABASE_FOLDERS,
    NEVER_FOLDERS,
    VENV_MARKS,
    find_script,
    imported_below,
    is_broad,
    is_written,
    read_written,
    secrets_among,
)
from rla_client.config.schema import DATA_FOLDER as DATABASE_FOLDER
from rla_client.config.schema import LAUNCHER_FOLDER
from rla_client.contract.errors import LaunchError
from rla_client.contract.files import atomic_file, write_atomic
from rla_client.contract.jobs import MAX_FILE_BYTES

GIT_TIMEOUT_S = 10.0  # a repository on a sleeping network disk must not hold up the training
RECORD_MARKS = frozenset({"metadata.json", "variant.json"})  # of an experiment's folder
ARCHIVE_NAME = "launch_archive.tar.xz"
RAW_NAME = "launch_archive.tar"
MANIFEST_NAME = "launch_manifest.json"
WARN_TOTAL_BYTES = 8 << 20
COMPRESS_AT_ONCE_BYTES = 128 << 10  # about 30 ms; a process costs as much
PRESET = 6
_COMPRESSOR = """
import lzma, os, shutil, sys
raw, temp, final, preset = sys.argv[1:]
os.nice(10)
with open(raw, "rb") as source, open(temp, "xb") as target:
    with lzma.open(target, "wb", preset=int(preset)) as packed:
        shutil.copyfileobj(source, packed, 1 << 20)
    target.flush()
    os.fsync(target.fileno())
os.replace(temp, final)
folder = os.open(os.path.dirname(final), os.O_RDONLY)
os.fsync(folder)
os.unlink(raw)
"""


@dataclass(frozen=True, slots=True)
class Repository:
    """The git repository of a launcher.

    Attributes:
        root: its top folder.
        githash: the commit; None before the first.
        dirty: whether the code is not that of the commit, None when git did not tell.
        tracked: names of the files that git knows, None when it did not tell.
        untracked: names of further files that are code, likewise.
    """

    root: Path
    githash: str | None
    dirty: bool | None
    tracked: frozenset[str] | None = None
    untracked: frozenset[str] | None = None


def find_repository(folder: Path, outside: tuple[Path, ...]) -> Repository | None:
    """The git repository that the code in `folder` is of; what lies in the folders `outside` is not code."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    if not root:
        return None
    base = Path(root.decode().strip())
    commit = _git(base, "rev-parse", "--verify", "-q", "HEAD")
    left_out = [Path(os.path.realpath(path)) for path in outside]
    below = [os.path.relpath(path, base) for path in left_out if path.is_relative_to(base) and path != base]
    exclude = [":(top)", *(f":(exclude,top,literal){path}" for path in below)]
    changes = _git(base, "status", "--porcelain", "--untracked-files=no", "--", *exclude)
    tracked = _names(_git(base, "ls-files", "-z", "--cached", "--recurse-submodules"), below)
    below_base = os.path.relpath(folder, base)
    if _is_among_data(base, folder) and not any(name.startswith(f"{below_base}/") for name in tracked or ()):
        return None
    if is_broad(base):
        others: frozenset[str] | None = _running(base, folder) - (tracked or frozenset())
    else:
        listed = _git(base, "ls-files", "-z", "--others", "--exclude-standard", "--", *exclude)
        others = _names(listed, below)
    known: dict[str, bool] = {}
    untracked = None
    if others is not None:
        written = read_written((*outside, base / DATABASE_FOLDER))
        untracked = frozenset(
            name
            for name in others
            if not in_no_code(base, os.path.dirname(name), known)
            and not ((noted := written.get(str(base / name))) and is_written(str(base / name), noted))
        )
    dirty = True if changes or untracked else None if changes is None or untracked is None else False
    return Repository(base, commit.decode().strip() if commit else None, dirty, tracked, untracked)


def _running(base: Path, folder: Path) -> frozenset[str]:
    """Names of the script and of what it imported from beside it and from `base`."""
    script = find_script()
    own = () if script is None else (str(script),)
    paths = map(os.path.realpath, (*own, *imported_below(folder), *imported_below(base)))
    return frozenset(os.path.relpath(path, base) for path in paths if Path(path).is_relative_to(base))


def lost_repository(folder: Path) -> Path | None:
    """A folder at or above `folder` that is a repository by its look; for when git named none."""
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            return None if _is_among_data(above, folder) else above
    return None


def _git(folder: Path, *words: str) -> bytes | None:
    return ask_git(folder, *words, limit_s=GIT_TIMEOUT_S)


def _names(output: bytes | None, outside: list[str]) -> frozenset[str] | None:
    if output is None:
        return None
    names = (os.fsdecode(name) for name in output.split(b"\0") if name)
    folders = tuple(f"{folder}/" for folder in outside)
    return frozenset(name for name in names if not name.startswith(folders))


def _is_data_root(folder: Path) -> bool:
    return all((folder / mark).is_dir() for mark in DATA_ROOT_MARKS)


def _is_data(root: Path, folder: Path) -> bool:
    return (
        folder.parts[-len(LAUNCHER_FOLDER) :] == LAUNCHER_FOLDER
        or _is_data_root(folder)
        or (folder.parent == root and folder.name in DATABASE_FOLDERS and _is_data_root(root))
        or all((folder / mark).exists() for mark in RECORD_MARKS)
    )


def _is_among_data(root: Path, folder: Path) -> bool:
    """Whether a launcher's folder is or is in one of data. A virtual environment's commands are not data."""
    above = (folder, *folder.parents) if folder != root and folder.is_relative_to(root) else ()
    return any(_is_data(root, one) for one in above if one != root and one.is_relative_to(root))


def in_no_code(root: Path, folder: str, known: dict[str, bool]) -> bool:
    """Whether a folder, relative to `root`, is or is in one that holds no code (see above)."""
    if folder in {"", "."}:
        return False
    if folder not in known:
        here = root / folder
        own = (
            here.name in NEVER_FOLDERS
            or any((here / mark).exists() for mark in VENV_MARKS)
            or _is_data(root, here)
        )
        known[folder] = own or in_no_code(root, os.path.dirname(folder), known)
    return known[folder]


_log = logging.getLogger("rla_client")
_compressing: list[subprocess.Popen[bytes]] = []  # kept, so that none is collected while it runs


@dataclass(slots=True)
class Manifest:
    """What an archive holds: path → {sha256, size, mode} or {link}; left_out: path → why.

    `too_large` is bytes of those that were left out for their size.
    """

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    too_large: dict[str, int] = field(default_factory=dict)
    total_bytes: int = 0


class Compression:
    """The background work on one archive."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        self._process = process

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done within `timeout_s`; it continues in any case."""
        if self._process is None:
            return True
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
            if self._process in _compressing:
                _compressing.remove(self._process)
            return True
        return False


def capture(
    folder: Path, repository: Repository | None, launcher: Path | None, secrets: Iterable[Path] = ()
) -> Compression:
    """Archive the launching code into `folder`.

    Args:
        folder: where archive and manifest go.
        repository: the repository; None: there is none.
        launcher: the launcher; None: there is none.
        secrets: files with passwords or keys, left out wherever they lie.

    Raises:
        LaunchError: git did not say what belongs to the repository.
        OSError: the archive cannot be written.
    """
    manifest = Manifest()
    if repository is not None:
        root, names = repository.root, _repository_files(repository)
        if is_broad(root):
            _log.warning(
                "%s is not a project: of what git does not track there, the launch archive holds only the "
                "launcher and what it has imported", root,
            )  # fmt: skip
    elif launcher is not None:
        root, names = launcher.parent, _files_beside(launcher)
    else:
        return Compression(None)
    raw = folder / RAW_NAME
    withheld = secrets_among(names, root, secrets)
    manifest.left_out.update(withheld)
    with atomic_file(raw, durable=False) as file, tarfile.open(fileobj=file, mode="w") as tar:
        for name in names:
            if name not in withheld:
                _add(tar, root, name, manifest)
    content = {"root": str(root), "files": manifest.files, "left_out": manifest.left_out}
    write_atomic(folder / MANIFEST_NAME, json.dumps(content, indent=1, sort_keys=True).encode())
    _warn_of_size(root, manifest)
    return _compress(raw, folder / ARCHIVE_NAME)


def _warn_of_size(root: Path, manifest: Manifest) -> None:
    if manifest.total_bytes + sum(manifest.too_large.values()) < WARN_TOTAL_BYTES:
        return
    shown = ", ".join(f"{name} ({size >> 20} MiB)" for name, size in list(manifest.too_large.items())[:5])
    more = f" and {len(manifest.too_large) - 5} more" if len(manifest.too_large) > 5 else ""  # noqa: PLR2004 - as above
    out = f", and {len(manifest.too_large)} file(s) are too large for it: {shown}{more}" if shown else ""
    _log.warning(
        "the launch archive of %s holds %d MiB%s; put data into .gitignore, or set "
        "archive_launch_repo=False", root, manifest.total_bytes >> 20, out,
    )  # fmt: skip


def _compress(raw: Path, final: Path) -> Compression:
    if raw.stat().st_size <= COMPRESS_AT_ONCE_BYTES:
        write_atomic(final, lzma.compress(raw.read_bytes(), preset=PRESET))
        raw.unlink()
        return Compression(None)
    temp = final.with_name(f".rla-tmp-{os.getpid()}-{final.name}")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _COMPRESSOR, str(raw), str(temp), str(final), str(PRESET)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    _compressing.append(process)
    return Compression(process)


def _repository_files(repository: Repository) -> list[str]:
    if repository.tracked is None or repository.untracked is None:
        message = f"git did not list the files of {repository.root} in time; the code is not archived"
        raise LaunchError(message)
    return sorted(repository.tracked | repository.untracked)


def _files_beside(launcher: Path) -> list[str]:
    """The launcher, modules beside it, and the modules of packages beside it that are imported."""
    here = launcher.parent
    lost = lost_repository(here)
    if lost is not None:
        _log.warning(
            "git tells nothing about the repository %s (see `git -C %s status`): the launch archive "
            "holds only %s, what lies beside it, and no commit is recorded", lost, lost, launcher.name,
        )  # fmt: skip
    beside = map(Path, imported_below(here)) if is_broad(here) else here.glob("*.py")
    found = {path.name for path in beside if path.parent == here} | {launcher.name}
    for name, module in list(sys.modules.items()):
        folders = getattr(module, "__path__", None)
        if "." not in name and folders is not None and str(here / name) in map(os.path.realpath, folders):
            found.update(str(path.relative_to(here)) for path in (here / name).rglob("*.py"))
    return sorted(found)


def _add(tar: tarfile.TarFile, root: Path, name: str, manifest: Manifest) -> None:
    path = root / name
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            tar.addfile(info)
            manifest.files[name] = {"link": info.linkname}
        elif not stat.S_ISREG(found.st_mode):
            manifest.left_out[name] = "not a file"
        elif found.st_size >= MAX_FILE_BYTES:
            manifest.left_out[name] = f"{found.st_size} bytes"
            manifest.too_large[name] = found.st_size
        else:
            _add_file(tar, path, name, found, manifest)
    except OSError as error:  # deleted but still tracked, or unreadable
        manifest.left_out[name] = error.strerror or str(error)


def _add_file(tar: tarfile.TarFile, path: Path, name: str, found: os.stat_result, manifest: Manifest) -> None:
    data = path.read_bytes()
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), stat.S_IMODE(found.st_mode), int(found.st_mtime)
    tar.addfile(info, io.BytesIO(data))
    manifest.files[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "mode": info.mode}
    manifest.total_bytes += len(data)


def restore(archive_dir: Path, target: Path) -> Manifest:
    """Put the archived tree into `target` (new or empty) and check each file's hash.

    Returns:
        The manifest; `left_out` names what the archive never held.

    Raises:
        LaunchError: no archive, `target` is not empty, or a file does not have its hash.
    """
    manifest = _read_manifest(archive_dir)
    if target.exists() and any(target.iterdir()):
        raise LaunchError(f"{target} is not empty; name a new folder for the code")
    target.mkdir(parents=True, exist_ok=True)
    left = dict(manifest.files)
    with _open_archive(archive_dir) as tar:
        for member in tar:
            entry = left.pop(member.name, None)
            if entry is None:
                raise LaunchError(f"the archive holds {member.name!r}, which its manifest does not name")
            _put_back(tar, member, entry, target)
    if left:
        raise LaunchError(f"the archive lacks {len(left)} files of its manifest, e.g. {next(iter(left))!r}")
    _put_links(manifest, target)
    return manifest


def _read_manifest(archive_dir: Path) -> Manifest:
    try:
        content = json.loads((archive_dir / MANIFEST_NAME).read_bytes())
        return Manifest(dict(content["files"]), dict(content["left_out"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"{archive_dir} has no code archive with a manifest: {error}") from error


def _open_archive(archive_dir: Path) -> tarfile.TarFile:
    for name in (ARCHIVE_NAME, RAW_NAME):
        if (archive_dir / name).exists():
            try:
                return tarfile.open(archive_dir / name)
            except (OSError, tarfile.TarError, lzma.LZMAError) as error:
                raise LaunchError(f"{archive_dir / name} cannot be read: {error}") from error
    raise LaunchError(f"{archive_dir} has no {ARCHIVE_NAME}")


def _put_back(tar: tarfile.TarFile, member: tarfile.TarInfo, entry: dict[str, Any], target: Path) -> None:
    if "link" in entry:
        return
    final = _place(target, member.name)
    source = tar.extractfile(member)
    data = b"" if source is None else source.read()
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise LaunchError(f"{member.name} in the archive is damaged: its hash is not the manifest's")
    final.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(final, data, durable=False)
    final.chmod(entry["mode"] & 0o777)


def _place(target: Path, name: str) -> Path:
    """Where an archived name goes. Any name that git takes is fine, as long as it stays below `target`."""
    parts = name.split("/")
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise LaunchError(f"the archive holds {name!r}, which is not a path below a folder")
    return target.joinpath(*parts)


def _put_links(manifest: Manifest, target: Path) -> None:
    for name, entry in manifest.files.items():  # last, so that no file is written through one
        if "link" in entry:
            final = _place(target, name)
            final.parent.mkdir(parents=True, exist_ok=True)
            final.symlink_to(entry["link"])
