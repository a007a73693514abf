"""Names in prose that are not there: part of `make lint`.

1. A unit-test file (tests/agent, tests/client) has a module of its name, in the folder of the same name.
2. Docstrings, comments and pages name, in backticks or as a path, only files and symbols that exist. ADRs
   tell of their time and are left out.
3. The first line of a module's or package's docstring is one noun phrase: one job.
4. A default that a page gives as "`key` (value)" is the one in the schema.
5. No banner of comment signs and dashes parts a module in two: the part is a module of its own.

Prints each fault as `file:line: what`; exit status 1 if there is any.
"""

# ruff: noqa: T201
from __future__ import annotations

import ast
import dataclasses
import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from rla_client.config import schema

ROOT = Path(__file__).parents[1]
SOURCES = ("rla_agent", "rla_client", "tests", "examples", ".ci")
PACKAGES = {"agent": "rla_agent", "client": "rla_client"}
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(r"(?<![\w/.-])(?:rla_agent|rla_client|tests|examples|docs|systemd)/[\w./-]*[\w/]")
BELOW = re.compile(r"(?<![\w/.<>{}-])([a-z_]+(?:/[a-z_]+)+\.py)\b")  # a path below a package's folder
LONE = re.compile(r"`([a-z_]+\.py)`")
NAME = re.compile(r"[A-Za-z_][\w.]*(?:\(\))?")
WORD = re.compile(r"[A-Za-z_]\w*")
DEFAULT = re.compile(
    r"`(?:AGENT\.|REMOTE_SETTING\.)?([a-z_]+)` \((?:default )?([\d,.]+) ?(s|B|KiB|MiB|GiB|%)?\)"
)
TWO_JOBS = re.compile(r";|\b(?:and|what|whose|how)\b", re.IGNORECASE)
BANNER = re.compile(r"#\s*[-=#~*]{2,}|#.*[-=#~*]{4,}\s*$")
UNITS = {"": 1, "s": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "%": 0.01}
FOREIGN = frozenset((
    "SFTPClient", "on_training_start", "Monitor", "ModelCheckpoint", "timesteps_total", "wandb_internal",
    "proto", "load_reduce", "sacct", "jq", "ReturnAverage", "hparam_domain_discrete",
    "ignore_missing_imports", "tokens_completion",
    "set_model_state_dict", "log_param", "log_figure", "log_image", "set_tag", "PerSourcePenalties",
    "PerSourcePenaltyExemptList", "PerSourceMaxStartups", "SessionsMax", "TasksMax", "rwx",
    "log_extras", "wandb_workspaces", "stats_logger", "STABLE", "num_logger_train_samples",
    "num_logger_eval_samples", "sample_completions",
))  # fmt: skip
"""Of other programs and libraries."""
ROOMS = frozenset(("architecture.md", "modules.md"))
"""Pages on which a lone file name is one of ours."""
EXAMPLES = frozenset((
    "itr_N", "name_N", "rankN", "NNNNNN", "X_T", "_2", "value_1", "wanted_1", "wanted_2", "loss_train",
    "return_std", "max_return", "best_model",
))  # fmt: skip
"""Names that stand for any name of their kind."""


def modules_of_tests() -> Iterator[str]:
    """Unit-test files without a module of their name."""
    for kind, package in PACKAGES.items():
        for test in sorted((ROOT / "tests" / kind).rglob("test_*.py")):
            below = test.parent.relative_to(ROOT / "tests" / kind)
            module = ROOT / package / below / test.stem.removeprefix("test_")
            if not module.with_suffix(".py").exists() and not (module / "__init__.py").exists():
                wanted = module.relative_to(ROOT).with_suffix(".py")
                yield f"{test.relative_to(ROOT)}:1: no module of its name: {wanted}"


def jobs_of_modules() -> Iterator[str]:
    """Modules and packages whose docstring's first line tells of two jobs."""
    for package in PACKAGES.values():
        for path in sorted((ROOT / package).rglob("*.py")):
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            first = doc.split("\n", 1)[0]
            if TWO_JOBS.search(first):
                yield f"{path.relative_to(ROOT)}:1: more than one noun phrase: {first}"


def banners(prose: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Comments that part a module in two."""
    for number, line in prose:
        if BANNER.match(line):
            yield number, f"a banner: {line}"


@functools.cache
def files() -> frozenset[str]:
    """All modules."""
    return frozenset(
        path.relative_to(ROOT).as_posix() for source in SOURCES for path in (ROOT / source).rglob("*.py")
    )


class Code:
    """A file of Python: what its code names, and its prose with line numbers."""

    def __init__(self, path: Path) -> None:
        self.words: set[str] = set(path.relative_to(ROOT).with_suffix("").parts)
        self.words.add(path.stem.removeprefix("bench_"))
        self.prose: list[tuple[int, str]] = []
        text = path.read_text(encoding="utf-8")
        docs = set()
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.body
            ):
                first = node.body[0]
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    docs.add(first.lineno)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                docs.add(node.lineno)  # of an attribute
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                self.prose.append((token.start[0], token.string))
            elif token.type == tokenize.STRING and token.start[0] in docs:
                for number, line in enumerate(token.string.splitlines()):
                    self.prose.append((token.start[0] + number, line))
            elif token.type in {tokenize.NAME, tokenize.STRING} or token.type == getattr(
                tokenize, "FSTRING_MIDDLE", -1
            ):
                self.words.update(WORD.findall(token.string))


def unknown_names(page: Path, line: str, known: frozenset[str]) -> Iterator[str]:
    """What a line of prose names and nobody has."""
    for path in PATH.findall(line):
        places = (ROOT / path, page.parent / path)
        if not any(place.exists() for place in places) and not any(ROOT.glob(path + "*")):
            yield f"no such file: {path}"
    for path in [*BELOW.findall(line), *(LONE.findall(line) if page.name in ROOMS else ())]:
        if not path.startswith("scripts/") and not any(f"/{one}".endswith(f"/{path}") for one in files()):
            yield f"no such file: {path}"
    for quoted in QUOTED.findall(line):
        if NAME.fullmatch(quoted):
            missing = [word for word in WORD.findall(quoted) if word not in known]
            if missing:
                yield f"no such name: `{quoted}`"


def defaults() -> dict[str, set[float]]:
    """Key → the defaults of keys of that name, where these are numbers."""
    found: dict[str, set[float]] = {}
    for section in vars(schema).values():
        if dataclasses.is_dataclass(section):
            for key in dataclasses.fields(section):
                if isinstance(key.default, int | float) and not isinstance(key.default, bool):
                    found.setdefault(key.name, set()).add(float(key.default))
    return found


def wrong_defaults(line: str, right: dict[str, set[float]]) -> Iterator[str]:
    """Defaults that a page gives and the schema does not."""
    for key, value, unit in DEFAULT.findall(line):
        told = float(value.replace(",", "")) * UNITS[unit]
        if key in right and told not in right[key]:
            yield f"the default of `{key}` is {' or '.join(map(str, sorted(right[key])))}, not {told}"


def pages() -> list[Path]:
    """Pages of today: README, and docs without the ADRs and what is made."""
    found = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "adr" not in path.parts]
    return [ROOT / "README.md", *found]


def main() -> int:
    """Print what is wrong; the exit status."""
    files = [path for top in SOURCES for path in sorted((ROOT / top).rglob("*.py"))]
    code = {path: Code(path) for path in files}
    known = (FOREIGN | EXAMPLES).union(*(one.words for one in code.values()))
    right = defaults()
    faults = [*modules_of_tests(), *jobs_of_modules()]
    for path, one in code.items():
        for number, line in one.prose:
            faults += [
                f"{path.relative_to(ROOT)}:{number}: {what}" for what in unknown_names(path, line, known)
            ]
        if path.relative_to(ROOT).parts[0] in PACKAGES.values():
            faults += [f"{path.relative_to(ROOT)}:{number}: {what}" for number, what in banners(one.prose)]
    for page in pages():
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            wrong = [*unknown_names(page, line, known), *wrong_defaults(line, right)]
            faults += [f"{page.relative_to(ROOT)}:{number}: {what}" for what in wrong]
    print("\n".join(faults))
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
