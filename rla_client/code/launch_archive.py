"""Archive of a launching repository.

Before `capture` returns, it writes the complete `launch_archive.tar`, and `launch_manifest.json` with the
SHA-256 of each file. A separate process, which may outlive this one, then compresses the tar to
`launch_archive.tar.xz` and removes it; small archives are compressed at once. So at least one readable
archive exists at all times; `restore` accepts both.

The archive contains the repository's code, without files of 8 MiB and more and without the files that a code
backup withholds as secrets. Without a repository, it contains the launcher, the modules beside it (in a home
folder or one for temporary files, only imported ones), and imported packages beside it.
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

from rla_client.code.file_selection import secrets_among
from rla_client.code.find_code import imported_below, is_broad
from rla_client.code.repository import Repository, lost_repository
from rla_client.contract.errors import LaunchError
from rla_client.contract.filesystem.atomic_write import atomic_file, write_atomic
from rla_client.contract.job.code_blob import MAX_FILE_BYTES

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
_log = logging.getLogger("rla_client")
_compressing: list[subprocess.Popen[bytes]] = []  # referenced, so that none is collected while it runs


@dataclass(slots=True)
class Manifest:
    """Content of an archive.

    Attributes:
        files: path → {sha256, size, mode} or {link}.
        left_out: path → reason.
        too_large: path → bytes of a file that was left out for its size.
        total_bytes: size of all archived files.
    """

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    too_large: dict[str, int] = field(default_factory=dict)
    total_bytes: int = 0


class Compression:
    """The compression of one archive in the background."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        self._process = process

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; returns whether it came within `timeout_s`."""
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
        folder: for archive and manifest.
        repository: the repository of the launcher, if any.
        launcher: the launcher's file, if any.
        secrets: files with passwords or keys, which are left out wherever they lie.

    Raises:
        LaunchError: git did not list the files of the repository.
        OSError: the archive cannot be written.
    """
    manifest = Manifest()
    if repository is not None:
        root, names = repository.root, _repository_files(repository)
        if is_broad(root):
            _log.warning(
                "%s is not a project: of the files that git does not track there, the launch archive holds "
                "only the launcher and its imports", root,
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
            "git does not answer about the repository %s (see `git -C %s status`): the launch archive holds "
            "only %s and the modules beside it, and no commit is recorded", lost, lost, launcher.name,
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
    """Extract the archived tree into `target` (new or empty) and check the hash of each file.

    Returns:
        The manifest; its `left_out` names the files that were not archived.

    Raises:
        LaunchError: there is no archive, `target` is not empty, or a file is damaged.
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
    """The path of an archived name below `target`.

    Raises:
        LaunchError: the name would lead out of `target`.
    """
    parts = name.split("/")
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise LaunchError(f"the archive holds {name!r}, which is not a path below a folder")
    return target.joinpath(*parts)


def _put_links(manifest: Manifest, target: Path) -> None:
    for name, entry in manifest.files.items():  # after the files, so that none is written through a link
        if "link" in entry:
            final = _place(target, name)
            final.parent.mkdir(parents=True, exist_ok=True)
            final.symlink_to(entry["link"])
