"""Search for a run's code folder.

The code lies in the git repository around the script, else in the script's own folder (`find_code`). Where
that is not a project (the home folder or one above it, the root of the file system, a folder for temporary
files), only the script is taken, with the modules of its folder that are imported when the run opens.
Without a script (a notebook, `python -c`, an installed command) the working folder takes the part of the
script's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.agent.places import SHARED_FOLDERS


@dataclass(frozen=True, slots=True)
class FoundCode:
    """The code of a program that was not configured.

    Attributes:
        root: the folder that names in the backup start from.
        script: the program; None without one.
        whole: the folder is a project and taken as a whole.
    """

    root: Path
    script: Path | None
    whole: bool

    def code_dirs(self) -> tuple[str, ...]:
        """What to back up, for BackupPlan."""
        if self.whole:
            return (".",)
        script = () if self.script is None else (str(self.script),)
        return (*script, *imported_below(self.root))

    def told(self) -> str:
        """The one line that says what was taken."""
        if self.whole:
            what = f"the source files of {self.root}"
        elif self.script is not None:
            what = f"{self.script} and what it imported from its folder, as {self.root} is not a project"
        else:
            what = f"only what was imported from {self.root}, which is not a project"
        return f"no rla_config.yaml was found: the code kept with this run is {what} (`rla init` sets it up)"


def find_code(start: Path | None = None) -> FoundCode:
    """The code of this program; `start` takes the part of the working folder."""
    script = find_script()
    folder = (start or Path.cwd()) if script is None else script.parent
    for place in (folder, *folder.parents):
        if (place / ".git").exists() and not is_broad(place):
            return FoundCode(place, script, whole=True)
    return FoundCode(folder, script, whole=not is_broad(folder))


def find_script() -> Path | None:
    """The file that was started; None for a notebook, `python -c` and installed commands."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    for name in filter(None, (main, *sys.argv[:1])):
        path = Path(os.path.abspath(name))
        if path.is_file() and not _installed(path):
            return path
    return None


def _installed(path: Path) -> bool:
    own = Path(__file__).resolve().parents[1]
    programs = {Path(sys.executable).parent, Path(sys.prefix, "bin"), Path(os.path.dirname(os.__file__))}
    return (
        not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
        or bool(programs & {path.parent})
        or path.resolve().is_relative_to(own)
    )


def is_broad(folder: Path) -> bool:
    """Whether a folder holds more than one project: home, what is above it, a folder for temporary files."""
    real = Path(os.path.realpath(folder))
    homes = [Path(os.path.realpath(os.path.expanduser("~")))]
    with suppress(ImportError, KeyError):
        import pwd  # noqa: PLC0415 - for homes only

        homes.append(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    temporary = {Path(os.path.realpath(name)) for name in (*SHARED_FOLDERS, tempfile.gettempdir())}
    return real == real.parent or real in temporary or any(home.is_relative_to(real) for home in homes)


def imported_below(folder: Path) -> tuple[str, ...]:
    """Files of the modules that were imported from `folder` as a place on Python's path, sorted."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            path, expected = Path(os.path.abspath(file)), folder.joinpath(*name.split("."))
            if path in {expected.with_name(f"{expected.name}.py"), expected / "__init__.py"}:
                found.add(str(path))
    return tuple(sorted(found))
