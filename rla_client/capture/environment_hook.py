"""Start of the capture by a file in an environment's site-packages.

`install` writes three small files: `rla_capture.pth` (Python up to 3.14), `rla_capture.start` (PEP 829, from
3.15 on), and the module that both name, a copy of the loader. Without RLA_CAPTURE they do nothing, even if
this package was uninstalled.
"""

from __future__ import annotations

import sysconfig
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

from rla_client.contract.capture.environment import loader_folder
from rla_client.contract.filesystem.atomic_write import write_atomic

MODULE = "rla_capture_start"
_PTH = (
    'import os; exec("try:\\n import {module}; {module}.start()\\nexcept ImportError: pass") '
    'if os.environ.get("RLA_CAPTURE") else None\n'
)


def site_folder() -> Path:
    """The site-packages of this interpreter."""
    return Path(sysconfig.get_paths()["purelib"])


def wanted_files(folder: Path) -> dict[Path, bytes]:
    """The files below a site-packages folder, with their content."""
    return {
        folder / f"{MODULE}.py": (loader_folder() / "sitecustomize.py").read_bytes(),
        folder / "rla_capture.start": f"{MODULE}:start\n".encode(),
        folder / "rla_capture.pth": _PTH.format(module=MODULE).encode(),
    }


def install(folder: Path) -> bool:
    """Write the files; returns False if they exist already.

    Raises:
        OSError: the folder cannot be written.
    """
    files = wanted_files(folder)
    missing = {path: content for path, content in files.items() if _content(path) != content}
    for path, content in missing.items():  # the module first, then the files that name it
        write_atomic(path, content, mode=0o644)
    return bool(missing)


def remove(folder: Path) -> bool:
    """Remove the files; returns False if there are none.

    Raises:
        OSError: the folder cannot be written.
    """
    there = [path for path in reversed(wanted_files(folder)) if path.exists()]
    for path in there:
        path.unlink()
    compiled = Path(cache_from_source(str(folder / f"{MODULE}.py")))
    compiled.unlink(missing_ok=True)
    with suppress(OSError):
        compiled.parent.rmdir()  # fails if it holds other files
    return bool(there)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
