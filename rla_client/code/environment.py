"""The file environment.json of a run.

It records what is needed to understand and repeat the run: launch command, host, Python and package versions,
RLA/CUDA/SLURM variables, the git commit and branch, and the diff of uncommitted changes. git makes the diff
in a thread that starts before the code is captured. If the diff is not ready when the run starts, the same
thread writes a second version of the file a moment later. Secrets (`run_secrets`) are replaced in variables,
in the command line and in the diff, whatever AGENT.hide_secrets is.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.code.backup_plan import BackupReport
from rla_client.code.git import GIT_LIMIT_S
from rla_client.code.git_diff import git_diff
from rla_client.code.git_state import git_state
from rla_client.code.hidden_text import HIDDEN, hide_in_command, hide_in_text, is_secret_value
from rla_client.code.run_secrets import Secrets
from rla_client.code.secret_names import secrecy
from rla_client.contract.process.descriptors import standard_taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


FORMAT_VERSION = 1
DIFF_WAIT_S = 0.03  # longest wait of log_files_gen for the diff, once everything else is done
MAX_VALUE_CHARS = 4096
SHOWN_VARIABLES = re.compile(
    r"(RLA|CUDA|SLURM|NCCL|NVIDIA|OMP|MKL|OPENBLAS|TORCH|PYTORCH|TF|XLA|JAX|HIP|ROCR|PBS|LSB|OMPI|PMI|RAY)_.+"
    r"|CONDA_DEFAULT_ENV|CUBLAS_WORKSPACE_CONFIG|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|PYTHONHASHSEED|PYTHONPATH"
    r"|RANK|VIRTUAL_ENV|WORLD_SIZE"
)


class EnvironmentCapture:
    """Collects the environment of a run; create it before the code is captured.

    Args:
        code_root: folder of the project; its repository is described.
        secrets: of the run, hidden in everything that is written.
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
        """Write the file, and once more if the diff comes later.

        Args:
            write: gets the content; called here, and perhaps once from another thread.
            backup: report of the code backup.
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
        """Wait for git; returns whether it is done."""
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
    """Indented JSON with one value on each line."""
    return (json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n").encode("utf-8", "replace")


def describe(code_root: Path, secrets: Secrets) -> dict[str, Any]:
    """The environment without git, as plain data."""
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
    """Installed distributions and their versions, from the names of their metadata folders.

    Reading the metadata would take a hundred times as long.
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
    """The variables that matter to an experiment, sorted by name, with hidden secrets."""
    return {
        name: HIDDEN
        if is_secret_value(secrecy(name), environment[name])
        else hide_in_text(environment[name])[:MAX_VALUE_CHARS]
        for name in sorted(environment)
        if SHOWN_VARIABLES.fullmatch(name)
        and name not in {"RLA_RUN", "RLA_WRITER_FOLDER"}  # set by this package for worker processes
    }
