"""What a run is started with, captured as it starts: the project's code, and `environment.json`.

`back_up_code` walks the project, reads what belongs to it and writes one blob into the spool; then one
JOB frame of kind `code` names that blob. The agent turns the blob into `code/<index>/`, where equal files
of all runs share one inode (`rla_agent/pipeline/blob_jobs.py`). So the content is that of the call, an absent
agent costs nothing, and the run starts some tens of milliseconds later. Where the spool takes no blob the
files are copied by the caller. The blob is laid out in `contract/jobs.py`. Files over MAX_FILE_BYTES, and
whatever is past MAX_TOTAL_BYTES or MAX_FILES, are listed in the report instead of copied. Which files
there are to copy is decided in `select.py`.

`environment.json` is there so that the run can be understood and repeated: launch command, host, Python
and package versions, RLA/CUDA/SLURM variables, the git commit and branch (read from the repository's
files, without a process), and the diff of what is not committed. git makes the diff, in a thread that
begins before the code is captured: at most GIT_LIMIT_S and DIFF_MAX_BYTES. What is not there when the run
starts is written a moment later by the same thread, as a second version of the file.

Secrets: what `secrets` takes for one is replaced in variables, in the command line and in the diff,
whatever AGENT.hide_secrets says. Files that by their name hold some are left out of the diff, also where
they were renamed or copied; `left_out` names them.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.code.secrets import (
    ANY,
    GIT,
    GIT_ENVIRONMENT,
    GIT_LIMIT_S,
    HIDDEN,
    Secrets,
    hide_in_command,
    hide_in_text,
    hide_in_url,
    is_secret_path,
    is_secret_value,
    secrecy,
)
from rla_client.code.select import BackupPlan, BackupReport, select_files
from rla_client.contract.descriptors import open_high, standard_taken
from rla_client.contract.errors import SpoolError
from rla_client.contract.files import NEW_FLAGS
from rla_client.contract.jobs import (
    BLOB_MAGIC,
    BLOB_TAIL,
    JOB_CODE,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
)
from rla_client.contract.layout import component_problem
from rla_client.contract.protocol import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rla_client.stream.outbox import Outbox

FORMAT_VERSION = 1
DIFF_MAX_BYTES = 1_000_000
DIFF_WAIT_S = 0.03  # what log_files_gen may wait for the diff once everything else is done
MAX_VALUE_CHARS = 4096
SHOWN_VARIABLES = re.compile(
    r"(RLA|CUDA|SLURM|NCCL|NVIDIA|OMP|MKL|OPENBLAS|TORCH|PYTORCH|TF|XLA|JAX|HIP|ROCR|PBS|LSB|OMPI|PMI|RAY)_.+"
    r"|CONDA_DEFAULT_ENV|CUBLAS_WORKSPACE_CONFIG|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|PYTHONHASHSEED|PYTHONPATH"
    r"|RANK|VIRTUAL_ENV|WORLD_SIZE"
)
_LITERAL = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]{1,100})(?P<sign>["']?\s*[:=]\s*)"""
    r"""(?:(?P<quoted>"[^"]+"|'[^']+')|(?P<bare>[^\s"'(){}\[\],]+)(?=\s*,?\s*$))"""
)
MAX_MASKED_LINE_CHARS = 1000  # longer ones are generated text; a search in them would be slow
_SECTION = "diff --git "  # begins what git tells of one file; no line of content begins so
_NAMED = ("--- a/", "+++ b/", '--- "a/', '+++ "b/', "rename from ", "rename to ", "copy from ", "copy to ")


def back_up_code(
    plan: BackupPlan, outbox: Outbox | None, code_dir: Path, warn: Callable[[str], None]
) -> BackupReport:
    """Capture the project's files; whatever goes wrong is a warning, never an error.

    Args:
        plan: what to capture.
        outbox: takes the blob and the job; None copies at once.
        code_dir: item folder of the kind `code`, which the caller fills itself where the spool
            takes no blob.
        warn: gets at most one text.

    Returns:
        What was captured. The content is safe from later edits when this returns.
    """
    started = time.perf_counter()
    report = BackupReport()
    try:
        _capture(plan, outbox, code_dir, report)
    except Exception as error:  # noqa: BLE001 - public edge: a run never fails for its code backup
        report.notes.append(f"stopped early: {type(error).__name__}: {error}")
    report.took_s = time.perf_counter() - started
    text = report.warning()
    if text:
        warn(text)
    return report


def _capture(plan: BackupPlan, outbox: Outbox | None, code_dir: Path, report: BackupReport) -> None:
    files = select_files(plan, report)
    folder = None if outbox is None else outbox.blobs_folder
    if outbox is not None and folder is not None:
        try:
            name = _write_blob(folder, outbox.blob_room, files, report)
        except OSError as error:
            report.notes.append(f"the spool took no blob ({error.strerror or error}), so files were copied")
            report.files = report.total_bytes = 0
        else:
            if outbox.job(JOB_CODE, {"blob": name}):
                return
            with suppress(OSError):
                (folder / name).unlink()
            report.notes.append(f"{outbox.why_refused}, so files were copied")
            report.files = report.total_bytes = 0
    _copy(files, code_dir, report)


def _contents(files: Iterable[tuple[str, str]], report: BackupReport) -> Iterator[tuple[str, bytes]]:
    """Read the files within the limits; what is over them or unreadable goes to the report."""
    for name, path in files:
        data = _read_file(name, path, report)
        if data is None:
            continue
        report.files += 1
        report.total_bytes += len(data)
        yield name, data


def _read_file(name: str, path: str, report: BackupReport) -> bytes | None:
    for problem in filter(None, map(component_problem, name.split("/"))):  # the agent would take none at all
        report.leave_out(repr(name)[1:-1], 0, f"its name: {problem}")
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        report.leave_out(name, 0, error.strerror or "unreadable")
        return None
    try:
        size = os.fstat(descriptor).st_size
        why = _limit_passed(size, report)
        if why is None:
            data = _read_up_to(descriptor, MAX_FILE_BYTES + 1)
            why = _limit_passed(len(data), report)
            if why is None:
                return data
        report.leave_out(name, size, why)
    except OSError as error:
        report.leave_out(name, 0, error.strerror or "unreadable")
    finally:
        os.close(descriptor)
    return None


def _read_up_to(descriptor: int, limit: int) -> bytes:
    first = os.read(descriptor, 1 << 18)
    if len(first) < 1 << 18:
        return first
    parts = [first]
    room = limit - len(first)
    while room > 0 and (part := os.read(descriptor, room)):
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


def _limit_passed(size: int, report: BackupReport) -> str | None:
    if size > MAX_FILE_BYTES:
        return f"over {MAX_FILE_BYTES >> 20} MiB"
    if report.total_bytes + size > MAX_TOTAL_BYTES:
        return f"past {MAX_TOTAL_BYTES >> 20} MiB in all"
    if report.files >= MAX_FILES:
        return f"past {MAX_FILES} files"
    return None


def _write_blob(folder: Path, room: int, files: list[tuple[str, str]], report: BackupReport) -> str:
    """Write the blob and return its name.

    Raises:
        OSError: the spool takes no blob; nothing is left of it.
    """
    name = f"code-{os.urandom(8).hex()}"
    path = folder / name
    index: list[tuple[str, int]] = []
    try:
        descriptor = open_high(path, NEW_FLAGS)
        with open(descriptor, "wb", buffering=1 << 20) as blob:
            blob.write(BLOB_MAGIC)
            for relative, data in _contents(files, report):
                room -= len(data)
                if room < 0:
                    raise OSError(errno.EDQUOT, "AGENT.spool_max_bytes is reached")  # noqa: TRY301 - as a write does
                blob.write(data)
                index.append((relative, len(data)))
            packed = pack(index)
            blob.write(packed)
            blob.write(BLOB_TAIL.pack(len(packed), BLOB_MAGIC))
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    return name


def _copy(files: list[tuple[str, str]], code_dir: Path, report: BackupReport) -> None:
    """Plain copies into the item folder, for want of a spool.

    Raises:
        SpoolError: the folder takes no files either.
    """
    try:
        for name, data in _contents(files, report):
            target = code_dir / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), open(target, "xb") as file:
                file.write(data)
    except OSError as error:
        raise SpoolError(f"cannot write below {code_dir}: {error.strerror or error}") from error


class EnvironmentCapture:
    """Collects the environment of a run; create it before the code is captured.

    Args:
        code_root: folder of the project; its repository is described.
        secrets: of the run; hidden in all that is written.
    """

    def __init__(self, code_root: Path, *, secrets: Secrets | None = None) -> None:
        self._root = code_root
        self._secrets = secrets or Secrets()
        self._deadline = time.monotonic() + GIT_LIMIT_S
        self._git = git_state(code_root)
        self._lock = threading.Lock()
        self._late: Callable[[], None] | None = None
        self._done = threading.Event()
        if self._git is None:
            self._done.set()
        else:
            threading.Thread(target=self._diff, name="rla-git-diff", daemon=True).start()

    def write(self, write: Callable[[bytes], None], backup: BackupReport | None = None) -> None:
        """Write the file: once, or once more when the diff comes later.

        Args:
            write: takes the content; called here, and perhaps once from another thread.
            backup: what came of the code backup.
        """
        data = describe(self._root, self._secrets)
        if backup is not None:
            data["code_backup"] = describe_backup(backup)
        self._done.wait(DIFF_WAIT_S)
        with self._lock:
            data["git"] = self._git
            content = to_json(data)
            if not self._done.is_set():
                self._late = lambda: write(to_json(data | {"git": self._git}))
        write(content)

    def wait(self, timeout_s: float) -> bool:
        """Wait for git; True when it is done."""
        return self._done.wait(timeout_s)

    @standard_taken()
    def _diff(self) -> None:
        try:
            found = git_diff(self._root, self._deadline)
        except Exception as error:  # noqa: BLE001 - top of a thread: a run never fails for its diff
            found = {"state": f"failed: {type(error).__name__}: {error}"}
        with self._lock:
            assert self._git is not None
            if "text" in found:
                found["text"] = self._secrets.verbatim(found["text"])
            dirty = bool(found.get("text") or found.get("left_out"))
            self._git = self._git | {"dirty": dirty if found["state"] == "complete" else None, "diff": found}
            self._done.set()
            late = self._late
        if late is not None:
            with suppress(OSError):
                late()


def to_json(data: dict[str, Any]) -> bytes:
    """Readable JSON, one value a line."""
    return (json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n").encode("utf-8", "replace")


def describe(code_root: Path, secrets: Secrets) -> dict[str, Any]:
    """Everything but git, as plain data."""
    hide = secrets.verbatim
    return {
        "format_version": FORMAT_VERSION,
        "command": [hide(word)[:MAX_VALUE_CHARS] for word in hide_in_command(sys.orig_argv)],
        "cwd": _cwd(),
        "code_root": str(code_root),
        "host": {
            "name": socket.gethostname(),
            "system": platform.platform(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "memory_bytes": _memory_bytes(),
        },
        "user": {"uid": os.getuid(), "name": os.environ.get("USER") or os.environ.get("LOGNAME")},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "prefix": sys.prefix,
        },
        "packages": package_versions(sys.path),
        "environment": {name: hide(value) for name, value in shown_variables(os.environ).items()},
    }


def describe_backup(report: BackupReport) -> dict[str, Any]:
    """A code backup's report as plain data."""
    return {
        "files": report.files,
        "bytes": report.total_bytes,
        "not_copied": [{"path": name, "bytes": size, "why": why} for name, size, why in report.left_out],
        "not_copied_count": report.left_out_count,
        "notes": list(report.notes),
    }


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def package_versions(path: Iterable[str]) -> dict[str, str]:
    """Installed distributions by name, from the names of their metadata folders alone.

    Reading the metadata itself would take a hundred times as long.
    """
    found: dict[str, str] = {}
    for folder in path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in names:
            stem, extension = os.path.splitext(entry)
            if extension in {".dist-info", ".egg-info"} and "-" in stem:
                name, version = stem.split("-")[:2]
                found.setdefault(name.replace("_", "-").lower(), version)
    return dict(sorted(found.items()))


def shown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter to an experiment, secrets hidden, sorted by name."""
    return {
        name: HIDDEN
        if is_secret_value(secrecy(name), environment[name])
        else hide_in_text(environment[name])[:MAX_VALUE_CHARS]
        for name in sorted(environment)
        if SHOWN_VARIABLES.fullmatch(name)
        and name not in {"RLA_RUN", "RLA_WRITER_FOLDER"}  # our own notes for workers
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and branch of the repository around `folder`; None when there is none."""
    for place in (folder, *folder.parents):
        marker = place / ".git"
        if not marker.exists():
            continue
        git_dir = marker
        if marker.is_file():  # a work tree or submodule: "gitdir: <path>"
            git_dir = place / _text(marker).partition("gitdir:")[2].strip()
        head = _text(git_dir / "HEAD")
        common = git_dir / (_text(git_dir / "commondir") or ".")
        branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else None
        commit = _resolve(head.removeprefix("ref: "), (git_dir, common)) if branch else head or None
        return {
            "root": str(place),
            "commit": commit,
            "branch": branch,
            "dirty": None,
            "diff": {"state": "pending"},
        }
    return None


def _resolve(ref: str, folders: tuple[Path, ...]) -> str | None:
    for folder in folders:
        commit = _text(folder / ref)
        if commit:
            return commit
        for line in _text(folder / "packed-refs").splitlines():
            commit, _, name = line.partition(" ")
            if name == ref:
                return commit
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def git_diff(folder: Path, deadline: float) -> dict[str, Any]:
    """What differs from the last commit: {"state": "complete" | "cut" | …, "text": …, "left_out": [name]}.

    git runs without the repository's hooks, external diffs, text filters and file monitor.

    Args:
        folder: inside the repository.
        deadline: of `time.monotonic`.
    """
    command = [
        *GIT, "-c", "core.quotePath=false", "diff", "--no-ext-diff", "--no-textconv", "--no-color",
        "--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "-M20%", "-C20%", "HEAD", "--", ":/",
    ]  # fmt: skip
    environment = os.environ | GIT_ENVIRONMENT | {"LC_ALL": "C"}
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return {"state": f"git could not be started: {error.strerror or error}"}
    killer = threading.Timer(max(0.0, deadline - time.monotonic()), _kill, (child,))
    killer.daemon = True
    killer.start()
    assert child.stdout is not None
    with child.stdout:
        text = child.stdout.read(DIFF_MAX_BYTES + 1)
        whole = len(text) <= DIFF_MAX_BYTES
    if not whole:
        _kill(child)
    status = child.wait()
    killer.cancel()
    state = "complete" if whole and status == 0 else "cut" if not whole else f"git ended with status {status}"
    if status == -signal.SIGKILL and whole:
        state = "given up: git took too long"
    shown = text[:DIFF_MAX_BYTES].decode("utf-8", "replace")
    kept, left_out = _without_secret_files(shown)
    found: dict[str, Any] = {"state": state, "text": hide_in_diff(kept)}
    return found | ({"left_out": left_out} if left_out else {})


def _without_secret_files(diff: str) -> tuple[str, list[str]]:
    """A diff without the files whose former or new name is secret, and these names."""
    parts = [(names, part, any(map(is_secret_path, names))) for names, part in _sections(diff)]
    left_out = sorted({name for names, _, secret in parts if secret for name in names})
    return "".join(part for _, part, secret in parts if not secret), left_out


def _sections(diff: str) -> Iterator[tuple[set[str], str]]:
    """What a diff tells of each file: its names, the former and the new one, and the text."""
    lines: list[str] = []
    for line in [*diff.splitlines(keepends=True), _SECTION]:
        if line.startswith(_SECTION) and lines:
            yield _names(lines), "".join(lines)
            lines = []
        lines.append(line)


def _names(section: list[str]) -> set[str]:
    head = section[0].removeprefix(_SECTION).rstrip("\n")
    half, other = head[: len(head) // 2], head[len(head) // 2 + 1 :]
    found = {half} if half.replace("a/", "b/", 1) == other else set()  # else further lines tell both names
    for line in section[1:]:
        if line.startswith("@@"):
            break
        if line.startswith(_NAMED):
            found.add(line.split(" ", 1 if line[0] in "-+" else 2)[-1].rstrip("\t\n"))
    names = {_unquoted(name) for name in found}
    return {name.partition("/")[2] if name.startswith(("a/", "b/")) else name for name in names}


def _unquoted(name: str) -> str:
    """A file's name without git's quotes, which only names with special characters have."""
    if not name.startswith('"'):
        return name
    raw = name[1:-1].encode().decode("unicode_escape", "replace")
    return raw.encode("latin-1", "replace").decode("utf-8", "replace")


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)


def hide_in_diff(text: str) -> str:
    """Hide literals behind names that sound like a secret, and passwords in URLs."""
    return "\n".join(_hide_in_line(line) for line in text.split("\n"))


def _hide_in_line(line: str) -> str:
    if len(line) > MAX_MASKED_LINE_CHARS:
        return line

    def literal(match: re.Match[str]) -> str:
        level, value = secrecy(match["name"]), (match["quoted"] or match["bare"]).strip("\"'")
        name_of_another = match["bare"] and level != ANY and not re.search(r"\d", value)
        if name_of_another or not is_secret_value(level, value):
            return match[0]
        return f"{match['name']}{match['sign']}{HIDDEN}"

    return hide_in_url(_LITERAL.sub(literal, line))
