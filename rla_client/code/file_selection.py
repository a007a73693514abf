"""The selection of the files that a code backup takes.

It reads nothing but folders. Of what the walk finds, TensorBoard's event files, what `rla plot` and `rla
export` wrote, and files that hold secrets by their name and are not committed as they are, stay out. Other
pictures and tables stay: a program may need them; where nobody said what the code is, only what looks like
source or is in git's index is taken (`sources_only`). A file that is called like an output (`train.log`) is
code only where git's index or a `!rule` has it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.code.backup_plan import BackupPlan, BackupReport
from rla_client.code.git import committed_by_git, tracked_by_git
from rla_client.code.ignore_rules import IgnoreRules, entry_path, read_rules
from rla_client.code.secret_files import is_secret, is_secret_path, named_secrets
from rla_client.code.walk import ProjectWalk
from rla_client.code.written_files import is_written, read_written
from rla_client.config.project import CONFIG_NAME
from rla_client.config.schema import load_config
from rla_client.contract.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def select_files(plan: BackupPlan, report: BackupReport) -> list[tuple[str, str]]:
    """List (name below the code folder, source path) of the files that belong to the run.

    Names are unique and in order; the first source of a name wins. Nothing is read yet.
    """
    root = Path(os.path.abspath(plan.code_root))
    base = entry_path(root, plan.lib_dir) if plan.lib_mode else root
    rules = read_rules(plan, root, report)
    walk = ProjectWalk(plan, root, rules, report)
    chosen: dict[str, str] = {}  # as text: pathlib took a third of the time of a thousand files
    if plan.lib_mode and not plan.run_files:
        report.notes.append("backup_code_by: lib keeps no script; name it: configure(run_file=…)")
    for top in [base] if plan.lib_mode else [entry_path(root, entry) for entry in plan.code_dirs]:
        for path in walk.below(top):
            chosen.setdefault(_name_below(path, str(base)), path)
    for entry in plan.run_files:
        script = entry_path(root, entry)
        if not script.is_file():
            report.notes.append(f"run_file {script} is not there")
        elif not walk.withhold(str(script)):
            chosen.setdefault(script.name, str(script))
    for path in _tracked(walk, root, report):
        chosen.setdefault(_name_below(path, str(base)), path)
    return _without_secrets(_without_results(_sources(chosen, plan, root, rules), plan, root), plan, report)


def _sources(
    chosen: dict[str, str], plan: BackupPlan, root: Path, rules: list[IgnoreRules]
) -> dict[str, str]:
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


def _tracked(walk: ProjectWalk, root: Path, report: BackupReport) -> list[str]:
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
    return {str(entry_path(root, entry)) for entry in (*plan.code_dirs, *plan.run_files)}


def _name_below(path: str, base: str) -> str:
    """Relative name; what lies outside of `base` keeps its own last folder, without the way up."""
    if path.startswith(f"{base}{os.sep}"):
        return path[len(base) + 1 :]
    return "/".join(part for part in os.path.relpath(path, base).split(os.sep) if part != os.pardir)
