"""Search for a run's code folder.

The code is the git repository around the script, or else the script's folder (`find_code`). If that folder is
not a project (the home folder or one above it, the root of the file system, a folder for temporary files),
the code is the script and the modules of its folder that are imported when the run opens. Without a script (a
notebook, `python -c`, an installed command), the working folder takes the place of the script's folder.
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
    """The code of a program without configuration.

    Attributes:
        root: the folder that names in the backup start from.
        script: the program; None without one.
        whole: the folder is a project and is taken completely.
    """

    root: Path
    script: Path | None
    whole: bool

    def code_dirs(self) -> tuple[str, ...]:
        """The value of `BackupPlan.code_dirs`."""
        if self.whole:
            return (".",)
        script = () if self.script is None else (str(self.script),)
        return (*script, *imported_below(self.root))

    def told(self) -> str:
        """A line for the user about what was taken."""
        if self.whole:
            what = f"the source files of {self.root}"
        elif self.script is not None:
            what = f"{self.script} and what it imported from its folder, as {self.root} is not a project"
        else:
            what = f"only what was imported from {self.root}, which is not a project"
        return f"no rla_config.yaml was found: the code kept with this run is {what} (`rla init` sets it up)"


def find_code(start: Path | None = None) -> FoundCode:
    """The code of this program; `start` takes the place of the working folder."""
    script = find_script()
    folder = (start or Path.cwd()) if script is None else script.parent
    for place in (folder, *folder.parents):
        if (place / ".git").exists() and not is_broad(place):
            return FoundCode(place, script, whole=True)
    return FoundCode(folder, script, whole=not is_broad(folder))


def find_script() -> Path | None:
    """The file that was started; None for a notebook, `python -c` or an installed command."""
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
    """Whether a folder holds more than one project: home, a folder above it, or one for temporary files."""
    real = Path(os.path.realpath(folder))
    homes = [Path(os.path.realpath(os.path.expanduser("~")))]
    with suppress(ImportError, KeyError):
        import pwd  # noqa: PLC0415 - for homes only

        homes.append(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    temporary = {Path(os.path.realpath(name)) for name in (*SHARED_FOLDERS, tempfile.gettempdir())}
    return real == real.parent or real in temporary or any(home.is_relative_to(real) for home in homes)


def imported_below(folder: Path) -> tuple[str, ...]:
    """Files of the modules that were imported from `folder` as an entry of sys.path, sorted."""
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            path, expected = Path(os.path.abspath(file)), folder.joinpath(*name.split("."))
            if path in {expected.with_name(f"{expected.name}.py"), expected / "__init__.py"}:
                found.add(str(path))
    return tuple(sorted(found))
