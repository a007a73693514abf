"""Which files belong to a run: where its code lies, the walk, the gitignore rules, and what is never taken.

Where no rla_config.yaml says it, the code lies in the git repository around the script, else in the script's
own folder (`find_code`). Where that is not a project (the home folder or one above it, the root of the file
system, a folder for temporary files), only the script is taken, with the modules of its folder that are
imported when the run opens. Without a script (a notebook, `python -c`, an installed command) the working
folder takes the part of the script's.

`select_files` reads nothing but folders. Left out, whatever the rules say: data roots (those given, and
folders that look like one), version control folders, virtual environments, caches, TensorBoard's event files,
what `rla plot` and `rla export` wrote (below), files that hold secrets by their name and are not committed as
they are (`secrets`), and whatever is not a regular file. Other pictures and tables stay: a program may need
them; where nobody said what the code is, only what looks like source or is in git's index is taken
(`sources_only`). A file that this process's own output is redirected to is never code, and one that is called
like an output (`train.log`) only where git's index or a `!rule` has it. Links to folders are not followed
unless BACKUP_CONFIG names them. Rules are git's: each file of rules is anchored at its own folder.

What `rla plot` and `rla export` write into a project is no code, and no name tells it from a picture that a
program needs. So each such file is noted in `<data_root>/.rla/written.jsonl`, one line each::

    {"path": "/home/me/project/plot.png", "size": 18372, "mtime_ns": 1764000000000000000}

and left out of backups as long as it is that very file: who puts another one in its place, or edits it, has
it backed up. Notes are of this machine alone and never the truth; what is lost of them costs a file too many.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.code.secrets import (
    committed_by_git,
    identity_of,
    is_secret,
    is_secret_name,
    is_secret_path,
    named_secrets,
    tracked_by_git,
)
from rla_client.config.schema import CONFIG_NAME, load_config
from rla_client.contract.descriptors import open_high
from rla_client.contract.errors import BrokenFileError, ConfigError
from rla_client.contract.files import held_folder, open_plain, write_atomic
from rla_client.contract.layout import ARCHIVED_TABLE, DEFAULT_LOG_TYPES
from rla_client.contract.paths import SHARED_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pathspec

    Written = dict[str, tuple[int, int]]

NOTES_FILE = ".rla/written.jsonl"  # below a data root
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_NOTES = 1000  # the newest; a project has some tens
MAX_NOTES_BYTES = 1 << 20  # when there are more, files that changed or went are dropped
MAX_SEEN = 200_000  # entries looked at, ignored ones too: a data set beside the code ends the walk
MAX_LISTED = 1000  # names of left-out files that a report keeps
NEVER_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox",
    ".ipynb_checkpoints", "node_modules", ".venv",
})  # fmt: skip
SOURCE_ENDINGS = frozenset({
    ".bash", ".bazel", ".c", ".cc", ".cfg", ".cmake", ".conf", ".cpp", ".css", ".cu", ".cuh", ".cxx",
    ".gin", ".go", ".h", ".hh", ".hpp", ".html", ".i", ".in", ".ini", ".ipynb", ".j2", ".java", ".jinja",
    ".jl", ".js", ".json", ".jsonc", ".json5", ".jsonnet", ".lock", ".lua", ".m", ".make", ".md", ".mjcf",
    ".mk", ".nix", ".proto", ".ps1", ".pxd", ".pxi", ".py", ".pyi", ".pyx", ".r", ".rb", ".rs", ".rst",
    ".sbatch", ".scala", ".sdf", ".sh", ".slurm", ".sql", ".swift", ".toml", ".ts", ".tsx", ".urdf", ".world",
    ".xacro", ".xml", ".yaml", ".yml", ".zsh",
})  # fmt: skip
SOURCE_NAMES = (  # how they begin, in small letters
    "cmakelists", "constraints", "copying", "dockerfile", "license", "makefile", "notice", "pipfile",
    "requirements", "snakefile",
)  # fmt: skip
OUTPUT_LIKE = re.compile(r".*\.(?:log|out|err)|(?:log|nohup|stdout|stderr)(?:\.txt)?", re.IGNORECASE)
WHY_NAMED = "it holds a secret of REMOTE_SETTING"
WHY_BY_NAME = "its name says that it holds secrets"
EVENT_FILE_MARK = ".tfevents."  # in the name of each event file, so TensorBoard finds them
VENV_MARKS = frozenset({"pyvenv.cfg", "conda-meta"})
DATA_ROOT_MARKS = frozenset({"log", "archive_tester"})  # kinds that no project has side by side
DATABASE_FOLDERS = frozenset({*DEFAULT_LOG_TYPES, ARCHIVED_TABLE, ".rla"})  # the last: the trash


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


def note_written(data_root: Path, path: Path) -> None:
    """Remember a file that has just been written; a database that cannot be written remembers nothing."""
    below, name = os.path.split(NOTES_FILE)
    with suppress(OSError), held_folder(data_root, below, create=True) as folder:
        found = os.stat(path)
        note = {"path": os.path.realpath(path), "size": found.st_size, "mtime_ns": found.st_mtime_ns}
        notes = folder / name
        with open(open_high(notes, _APPEND_FLAGS, 0o644), "ab") as file:
            file.write(json.dumps(note).encode() + b"\n")
            size = file.tell()
        if size > MAX_NOTES_BYTES:
            kept = [entry for entry in read_written([data_root]).items() if is_written(*entry)][-MAX_NOTES:]
            lines = [{"path": name, "size": size, "mtime_ns": mtime} for name, (size, mtime) in kept]
            write_atomic(notes, "".join(json.dumps(line) + "\n" for line in lines).encode(), durable=False)


def read_written(data_roots: Iterable[Path]) -> Written:
    """Real path → (bytes, mtime in ns) of the files noted in some databases; broken lines are passed over."""
    found: Written = {}
    for root in data_roots:
        try:
            with open_plain(root / NOTES_FILE) as file:
                content = file.read(2 * MAX_NOTES_BYTES)
        except (OSError, BrokenFileError):
            continue
        for line in content.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                note = json.loads(line)
                found[str(note["path"])] = (int(note["size"]), int(note["mtime_ns"]))
    return found


def is_written(path: str, noted: tuple[int, int]) -> bool:
    """Whether a file is still the one that was noted."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == noted


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """What to back up.

    Attributes:
        code_root: folder that relative names start from.
        lib_mode: True stores the content of `lib_dir`; False stores `code_dirs`.
        code_dirs: folders and files, relative to `code_root` or absolute (source mode).
        lib_dir: the built package (lib mode).
        run_files: scripts that are stored at the top, under their own name.
        ignore_file: file with gitignore rules; a missing one is reported, not fatal.
        ignore_rules: further gitignore rules, or names of files that hold some.
        data_roots: databases, never copied.
        secrets: files with passwords or keys, never copied and reported.
        sources_only: take only files that look like source, or that git tracks.
    """

    code_root: Path
    lib_mode: bool = False
    code_dirs: tuple[str, ...] = (".",)
    lib_dir: str = ""
    run_files: tuple[str, ...] = ()
    ignore_file: Path | None = None
    ignore_rules: tuple[str, ...] = ()
    data_roots: tuple[Path, ...] = ()
    secrets: tuple[Path, ...] = ()
    sources_only: bool = False


@dataclass(slots=True)
class BackupReport:
    """What came of it.

    Attributes:
        files: number of files captured.
        total_bytes: their size.
        left_out: (name, bytes, why) of files over a limit or unreadable, the first MAX_LISTED.
        left_out_count: how many there were in all.
        notes: missing folders, missing ignore file and the like, one line each.
        took_s: seconds that the caller waited.
    """

    files: int = 0
    total_bytes: int = 0
    left_out: list[tuple[str, int, str]] = field(default_factory=list)
    left_out_count: int = 0
    notes: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def leave_out(self, name: str, size_bytes: int, why: str) -> None:
        """Count a file that is not copied."""
        self.left_out_count += 1
        if len(self.left_out) < MAX_LISTED:
            self.left_out.append((name, size_bytes, why))

    def warning(self) -> str | None:
        """One text about all that was left out, None when there is nothing to say."""
        lines = list(self.notes)
        if self.left_out_count:
            shown = ", ".join(f"{name} ({why})" for name, _, why in self.left_out[:5])
            more = f" and {self.left_out_count - 5} more" if self.left_out_count > 5 else ""  # noqa: PLR2004 - as above
            lines.append(f"{self.left_out_count} file(s) were not backed up: {shown}{more}")
        return "code backup: " + "; ".join(lines) if lines else None


def select_files(plan: BackupPlan, report: BackupReport) -> list[tuple[str, str]]:
    """List (name below the code folder, source path) of the files that belong to the run.

    Names are unique and in order; the first source of a name wins. Nothing is read yet.
    """
    root = Path(os.path.abspath(plan.code_root))
    base = _entry_path(root, plan.lib_dir) if plan.lib_mode else root
    rules = _read_rules(plan, root, report)
    walk = _Walk(plan, root, rules, report)
    chosen: dict[str, str] = {}  # as text: pathlib took a third of the time of a thousand files
    if plan.lib_mode and not plan.run_files:
        report.notes.append("backup_code_by: lib keeps no script; name it: configure(run_file=…)")
    for top in [base] if plan.lib_mode else [_entry_path(root, entry) for entry in plan.code_dirs]:
        for path in walk.below(top):
            chosen.setdefault(_name_below(path, str(base)), path)
    for entry in plan.run_files:
        script = _entry_path(root, entry)
        if not script.is_file():
            report.notes.append(f"run_file {script} is not there")
        elif not walk.withhold(str(script)):
            chosen.setdefault(script.name, str(script))
    for path in _tracked(walk, root, report):
        chosen.setdefault(_name_below(path, str(base)), path)
    return _without_secrets(_without_results(_sources(chosen, plan, root, rules), plan, root), plan, report)


def _sources(chosen: dict[str, str], plan: BackupPlan, root: Path, rules: list[Rules]) -> dict[str, str]:
    """All but outputs, and with `sources_only` data, beside the code; what is named or tracked stays."""
    if plan.lib_mode:
        return chosen
    kept = _entries(plan, root)

    def is_doubtful(path: str) -> bool:
        name = os.path.basename(path)
        if not plan.sources_only:
            return OUTPUT_LIKE.fullmatch(name) is not None and not any(one.includes(path) for one in rules)
        name = name.lower()
        source = os.path.splitext(name)[1] in SOURCE_ENDINGS or name.startswith(SOURCE_NAMES)
        return not source and not name.endswith("ignore")

    doubtful = [path for path in chosen.values() if path not in kept and is_doubtful(path)]
    tracked = tracked_by_git(doubtful, str(root))
    if tracked is None and not plan.sources_only:
        return chosen  # rather too much than a file that the program needs
    left_out = set(doubtful) - set(tracked or ())
    return {name: path for name, path in chosen.items() if path not in left_out}


def _own_outputs() -> set[tuple[int, int]]:
    """The files that this process's stdout and stderr are redirected to."""
    found = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                found.add((status.st_dev, status.st_ino))
    return found


def _tracked(walk: _Walk, root: Path, report: BackupReport) -> list[str]:
    """Of withheld files and folders, those that git has committed and no rule leaves out; others are told."""
    if not walk.withheld:
        return []
    committed = committed_by_git(walk.withheld, str(root))
    for path in dict.fromkeys(walk.withheld):
        if not any(file == path or file.startswith(f"{path}{os.sep}") for file in committed):
            report.leave_out(os.path.relpath(path, root), 0, WHY_BY_NAME)
    return [file for file in committed if os.path.isfile(file) and not walk.ignored(file, folder=False)]


def secrets_among(names: Iterable[str], root: Path, secrets: Iterable[Path]) -> dict[str, str]:
    """Which files of a repository hold secrets, and why: the rules of `select_files` for a list of names.

    Args:
        names: relative to `root`.
        root: absolute.
        secrets: files with passwords or keys.
    """
    paths = {str(root / name): name for name in names}
    found = {paths[path]: WHY_NAMED for path in _named(paths, secrets)}
    by_name = [path for path, name in paths.items() if is_secret_path(name) or is_secret(path, str(root))]
    committed = set(committed_by_git(by_name, str(root)))
    return found | {paths[path]: WHY_BY_NAME for path in by_name if path not in committed}


def _named(paths: Iterable[str], secrets: Iterable[Path]) -> set[str]:
    """Those of `paths` that are named as secrets, also by an rla_config.yaml among them (perhaps itself)."""
    named = [*secrets]
    for path in paths:
        if os.path.basename(path) == CONFIG_NAME:
            try:
                named += load_config(path).secret_files
            except ConfigError:  # it may hold a password: nobody knows
                named.append(Path(path))
    return named_secrets(paths, named)


def _without_results(chosen: dict[str, str], plan: BackupPlan, root: Path) -> dict[str, str]:
    """All but what `rla` itself wrote, and event files; a file that the plan names stays."""
    written = read_written(plan.data_roots)
    names = {os.path.basename(path) for path in written}  # a look at a link for each file would be slow
    named = _entries(plan, root)

    def result(path: str) -> bool:
        if path in named:
            return False
        if EVENT_FILE_MARK in os.path.basename(path):
            return True
        real = os.path.realpath(path) if os.path.basename(path) in names else path
        return real in written and is_written(real, written[real])

    return {name: path for name, path in chosen.items() if not result(path)}


def _without_secrets(chosen: dict[str, str], plan: BackupPlan, report: BackupReport) -> list[tuple[str, str]]:
    secret = _named(list(chosen.values()), plan.secrets)
    for name, path in chosen.items():
        if path in secret:
            report.leave_out(name, 0, WHY_NAMED)
    return [(name, path) for name, path in chosen.items() if path not in secret]


def _entries(plan: BackupPlan, root: Path) -> set[str]:
    """What the plan names itself."""
    return {str(_entry_path(root, entry)) for entry in (*plan.code_dirs, *plan.run_files)}


def _entry_path(root: Path, entry: str) -> Path:
    return Path(os.path.abspath(root / os.path.expanduser(entry)))


def _name_below(path: str, base: str) -> str:
    """Relative name; what lies outside of `base` keeps its own last folder, without the way up."""
    if path.startswith(f"{base}{os.sep}"):
        return path[len(base) + 1 :]
    return "/".join(part for part in os.path.relpath(path, base).split(os.sep) if part != os.pardir)


@dataclass(frozen=True, slots=True)
class Rules:
    """gitignore rules and the folder that anchored ones start from."""

    anchor: str
    spec: pathspec.GitIgnoreSpec

    def ignores(self, path: str, *, folder: bool) -> bool:
        """True when a rule says that `path` (absolute) is left out."""
        if not path.startswith(self.anchor):
            return False
        relative = path[len(self.anchor) :]
        return self.spec.match_file(relative + "/" if folder else relative)

    def includes(self, path: str) -> bool:
        """True when a `!rule` says that a file stays."""
        return (
            path.startswith(self.anchor) and self.spec.check_file(path[len(self.anchor) :]).include is False
        )


def _read_rules(plan: BackupPlan, root: Path, report: BackupReport) -> list[Rules]:
    """Rule sets in use."""
    sources: list[tuple[Path, list[str]]] = []
    if plan.ignore_file is not None:
        path = _entry_path(root, str(plan.ignore_file))
        lines = _lines(path)
        if lines is None:
            report.notes.append(f"the ignore file {path} is not there")
        sources.append((path.parent, lines or []))
    patterns: list[str] = []
    for entry in plan.ignore_rules:
        if os.path.basename(entry).endswith("ignore"):
            path = _entry_path(root, entry)
            sources.append((path.parent, _lines(path) or []))
        else:
            patterns.append(entry)
    sources.append((root, patterns))
    return [_rules(root, anchor, lines) for anchor, lines in sources if lines]


def ignored_names(root: Path, ignore_file: Path, folder: Path, names: Iterable[str]) -> list[str]:
    """Those of the `names` in `folder` that an ignore file leaves out of a backup of the code at `root`.

    A missing file leaves nothing out; a relative path of it starts from `root`.
    """
    path = _entry_path(root, str(ignore_file))
    lines = _lines(path)
    if not lines:
        return []
    rules, here = _rules(root, path.parent, lines), os.path.abspath(folder)

    def ignored(name: str) -> bool:
        one = os.path.join(here, name)
        return rules.ignores(one, folder=os.path.isdir(one))

    return [name for name in names if ignored(name)]


def _rules(root: Path, anchor: Path, lines: list[str]) -> Rules:
    import pathspec  # noqa: PLC0415 - 38 ms, only where there are rules

    above = root == anchor or anchor in root.parents
    start = os.path.join(anchor if above else root, "")
    return Rules(start, pathspec.GitIgnoreSpec.from_lines(lines))


def _lines(path: Path) -> list[str] | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


class _Walk:
    """Walks trees in a fixed order, with what is left out for good left out."""

    def __init__(self, plan: BackupPlan, root: Path, rules: list[Rules], report: BackupReport) -> None:
        self.withheld: list[str] = []  # files and folders that may hold secrets
        self._root = str(root)
        self._rules = rules
        self._data_roots = {identity_of(path) for path in plan.data_roots} - {None}
        self._report = report
        self._seen = 0
        self._visited: set[tuple[int, int]] = set()
        self._own_outputs = _own_outputs()

    def below(self, top: Path) -> Iterator[str]:
        """Files at or below `top`; a missing one is noted."""
        try:
            found = os.stat(top)
        except OSError:
            self._report.notes.append(f"{top} is not there")
            return
        if str(top) != self._root and self.withhold(str(top)):
            return
        if stat.S_ISREG(found.st_mode):
            yield str(top)
        elif stat.S_ISDIR(found.st_mode):
            yield from self._folder(str(top), (found.st_dev, found.st_ino))

    def _folder(self, top: str, identity: tuple[int, int]) -> Iterator[str]:
        pending = [(top, identity)]
        while pending:
            folder, identity = pending.pop()
            if identity in self._visited or (identity in self._data_roots and folder != top):
                continue
            self._visited.add(identity)
            entries = self._entries(folder)
            if entries is None:
                return
            names = {entry.name for entry in entries}
            if names & VENV_MARKS or (folder != top and names >= DATA_ROOT_MARKS):
                continue
            # A project may be its own data root: then the folders of the kinds are not code.
            never = NEVER_FOLDERS | DATABASE_FOLDERS if identity in self._data_roots else NEVER_FOLDERS
            here, below = os.path.basename(folder), list[tuple[str, tuple[int, int]]]()
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in never and not self.ignored(entry.path, folder=True):
                        if is_secret_name(entry.name):
                            self.withheld.append(entry.path)
                        else:
                            below.append((entry.path, _entry_identity(entry)))
                elif (
                    _is_file(entry)
                    and not (self._own_outputs and _entry_identity(entry) in self._own_outputs)
                    and not self.ignored(entry.path, folder=False)
                    and not (
                        (entry.is_symlink() or is_secret_path(f"{here}/{entry.name}"))
                        and self.withhold(entry.path)
                    )
                ):
                    yield entry.path
            pending.extend(reversed(below))

    def withhold(self, path: str) -> bool:
        """Whether a file (or named folder) may hold secrets; then it is noted."""
        secret = is_secret(path, self._root)
        if secret:
            self.withheld.append(path)
        return secret

    def _entries(self, folder: str) -> list[os.DirEntry[str]] | None:
        """Sorted content; empty for an unreadable folder, None once the walk is too long."""
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    self._seen += 1
                    if self._seen > MAX_SEEN:
                        self._report.notes.append(f"more than {MAX_SEEN} files in all; the rest is left out")
                        return None
                    entries.append(entry)
        except OSError as error:
            self._report.leave_out(folder, 0, error.strerror or "unreadable")
        return sorted(entries, key=lambda entry: entry.name)

    def ignored(self, path: str, *, folder: bool) -> bool:
        """Whether a rule leaves `path` (absolute) out, or a folder that it is in."""
        return any(rules.ignores(path, folder=folder) for rules in self._rules)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link in a circle, or to where this user may not look: as one that leads nowhere
        return False


def _entry_identity(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return -1, entry.inode()
    return found.st_dev, found.st_ino
