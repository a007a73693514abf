"""Files that hold keys and passwords, by the names that tools give them: a code backup leaves them out.

What git tracks is no secret and stays: it is in the repository for everybody to read. Of a link that
is the name that it points to, not the content, so links do not count as tracked. git is asked only
where such a name was found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

SECRET_FOLDERS = frozenset({
    ".ssh", ".gnupg", ".aws", ".azure", ".config", ".cache", ".kube", ".docker", ".password-store",
})  # fmt: skip
_SECRET_FILE = re.compile(
    r"\.env|\.env\..*|\.envrc|\.netrc|_netrc|\.pgpass|\.pypirc|\.git-credentials"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?([._-].*)?|.*\.(pem|key|p12|pfx|ppk|kdbx)",
    re.IGNORECASE,
)
GIT_LIMIT_S = 2.0  # a repository on a slow network; then nothing counts as tracked
MAX_ASKED = 500  # names in one question to git; more of them are no project


def is_secret_name(name: str) -> bool:
    """Whether a file or folder of this name holds secrets."""
    return name in SECRET_FOLDERS or _SECRET_FILE.fullmatch(name) is not None


def is_secret(path: str, root: str) -> bool:
    """Whether a file is one by its own name, or by what it links to.

    Args:
        path: absolute.
        root: absolute; folders above it do not count, for a project may lie below `.cache`.
    """
    if is_secret_name(os.path.basename(path)):
        return True
    if not os.path.islink(path):
        return False
    real = os.path.realpath(path)
    base = os.path.join(os.path.realpath(root), "")
    below = real.removeprefix(base)
    return any(is_secret_name(part) for part in below.split(os.sep))


def tracked_by_git(paths: Iterable[str], root: str) -> list[str]:
    """Of these files, and of those below these folders, the ones whose content git tracks; absolute paths."""
    asked = list(paths)[:MAX_ASKED]
    if not asked or not _in_repository(root):
        return []
    import subprocess  # noqa: PLC0415 - only where there are such names

    command = [
        "git", "--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false",
        "-c", "core.hooksPath=/dev/null", "ls-files", "-z", "--", *asked,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    tracked = (os.path.join(root, os.fsdecode(name)) for name in done.stdout.split(b"\0") if name)
    return [path for path in tracked if not os.path.islink(path)]


def _in_repository(folder: str) -> bool:
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
