"""The selection of the files that a code backup takes.

It reads folders only. Of the files that the walk finds, these are left out: TensorBoard's event files, files
that `rla plot` and `rla export` wrote, and files with the name of a secret unless git has committed them
unchanged. Other pictures and tables are taken, as a program may need them. Without a configured code folder,
only files that look like source code or are in git's index are taken (`sources_only`). A file with the name
of an output (`train.log`) is code only if it is in git's index or a `!rule` includes it.
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
SOURCE_NAMES = (  # prefixes, in lower case
    "cmakelists", "constraints", "copying", "dockerfile", "license", "makefile", "notice", "pipfile",
    "requirements", "snakefile",
)  # fmt: skip
OUTPUT_LIKE = re.compile(r".*\.(?:log|out|err)|(?:log|nohup|stdout|stderr)(?:\.txt)?", re.IGNORECASE)
WHY_NAMED = "it holds a secret of REMOTE_SETTING"
WHY_BY_NAME = "its name says that it holds secrets"
EVENT_FILE_MARK = ".tfevents."  # in the name of each of TensorBoard's event files


def select_files(plan: BackupPlan, report: BackupReport) -> list[tuple[str, str]]:
    """(name below the code folder, source path) of the files that belong to the run.

    Names are unique and in order; the first source of a name wins. No file is read yet.
    """
    root = Path(os.path.abspath(plan.code_root))
    base = entry_path(root, plan.lib_dir) if plan.lib_mode else root
    rules = read_rules(plan, root, report)
    walk = ProjectWalk(plan, root, rules, report)
    chosen: dict[str, str] = {}  # texts, as pathlib would take a third of the time for a thousand files
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
    """The files without outputs and, with `sources_only`, without data; named or tracked files stay."""
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
        return chosen  # a superfluous file is better than a missing one
    left_out = set(doubtful) - set(tracked or ())
    return {name: path for name, path in chosen.items() if path not in left_out}


def _tracked(walk: ProjectWalk, root: Path, report: BackupReport) -> list[str]:
    """The withheld files that git has committed and no rule ignores; the others are reported."""
    if not walk.withheld:
        return []
    committed = committed_by_git(walk.withheld, str(root))
    for path in dict.fromkeys(walk.withheld):
        if not any(file == path or file.startswith(f"{path}{os.sep}") for file in committed):
            report.leave_out(os.path.relpath(path, root), 0, WHY_BY_NAME)
    return [file for file in committed if os.path.isfile(file) and not walk.ignored(file, folder=False)]


def secrets_among(names: Iterable[str], root: Path, secrets: Iterable[Path]) -> dict[str, str]:
    """Files of a repository that hold secrets, with the reason, by the rules of `select_files`.

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
    """The paths that are named as secrets, also by an rla_config.yaml among them, which may name itself."""
    named = [*secrets]
    for path in paths:
        if os.path.basename(path) == CONFIG_NAME:
            try:
                named += load_config(path).secret_files
            except ConfigError:  # it may contain a password
                named.append(Path(path))
    return named_secrets(paths, named)


def _without_results(chosen: dict[str, str], plan: BackupPlan, root: Path) -> dict[str, str]:
    """The files without event files and those that `rla` wrote; a file that the plan names stays."""
    written = read_written(plan.data_roots)
    names = {os.path.basename(path) for path in written}  # resolving each path would be slow
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
    """The paths that the plan names."""
    return {str(entry_path(root, entry)) for entry in (*plan.code_dirs, *plan.run_files)}


def _name_below(path: str, base: str) -> str:
    """The name relative to `base`; `..` is removed from the name of a file outside of it."""
    if path.startswith(f"{base}{os.sep}"):
        return path[len(base) + 1 :]
    return "/".join(part for part in os.path.relpath(path, base).split(os.sep) if part != os.pardir)
