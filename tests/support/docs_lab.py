"""Pages of the documentation as programs: their blocks in order, in a project with real runs.

A page runs in a copy of one project: `rla_config.yaml`, `train.py`, and `data` with four runs of it that a
real agent wrote. Its blocks of Python share one interpreter, as in a notebook; each block of shell is one
`bash -eu`. A block whose first line is `# NAME.EXT`, or whose fence says `title="NAME.EXT"`, is that file: it
is written, and a program in Python that no shell block names is run.

A block of text right below a block of shell is what that prints: each of its lines must be in the output, in
this order, numbers aside; `...` stands for lines left out.

A block that cannot run here stands behind a line `<!-- not run: REASON -->`; one behind
`<!-- needs: MODULE -->` runs where that is installed. What pages assume of their readers (names, files, a
placeholder such as RUN) is in `docs_pages.PAGES`.

Programs of ours on the PATH: `rla` and `rla-agent` from the sources, and `pip`, which installs nothing and
fails for an extra that pyproject.toml does not have. A server (`rla web`, `rla tb`) gets Ctrl-C once it has
printed its address.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from support.waiting import TIME_FACTOR

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LANGUAGES = ("python", "sh", "bash", "console")
FENCE = re.compile(r"^( *)(`{3,}|~{3,})(\w*)(.*)$")
MARK = re.compile(r"^ *<!-- (not run|needs): (.+?) -->")
TITLE = re.compile(r'title="([^"]+)"')
NAMED = re.compile(r"^# ([\w./-]+\.(?:py|yaml|sh|sql|toml))$")
BLOCK_DEADLINE_S = 100.0 * TIME_FACTOR


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    line: int
    language: str
    text: str
    file: str = ""
    reason: str = ""  # why it is never run
    needs: str = ""  # a module without which it is not run
    shows: str = ""  # what the page says that it prints


@dataclass(frozen=True)
class Assumed:
    """What a page takes for granted.

    Args:
        prelude: Python that runs before the page's own.
        setup: shell that runs before the page.
        files: name → text of files that are there.
        replaced: text → what stands for it when a block is run.
        alone: each Python block is a program of its own, `launcher.py`.
        after: checks what the page left in its folder.
        elsewhere: the test that runs all blocks of the page, by path; here none is.
    """

    prelude: str = ""
    setup: str = ""
    files: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    after: Callable[[Path], None] | None = None
    elsewhere: str = ""


def pages() -> list[Path]:
    """README.md and everything below docs, without the decision records, which show no commands."""
    return [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "adr" not in path.parts)]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    marks: dict[str, str] = {}
    at = 0
    while at < len(lines):
        if mark := MARK.match(lines[at]):
            marks[mark[1]] = mark[2]
        elif fence := FENCE.match(lines[at]):
            text, end = fenced(lines, at, fence[2])
            name = TITLE.search(fence[4]) or NAMED.match(lines[at + 1].strip())
            yield Block(
                at + 1,
                fence[3],
                text,
                name[1] if name else "",
                marks.get("not run", ""),
                marks.get("needs", ""),
                printed(lines, end + 1),
            )
            at, marks = end, {}
        elif lines[at].strip():
            marks = {}
        at += 1


def fenced(lines: list[str], at: int, fence: str) -> tuple[str, int]:
    """What is in the fence that begins at a line, and the line of its end."""
    end = next(number for number in range(at + 1, len(lines)) if lines[number].strip().startswith(fence))
    return textwrap.dedent("\n".join(lines[at + 1 : end])) + "\n", end


def printed(lines: list[str], at: int) -> str:
    """The block of text that comes next, where nothing stands before it; else empty."""
    while at < len(lines) and not lines[at].strip():
        at += 1
    return fenced(lines, at, "```")[0] if at < len(lines) and lines[at] == "```text" else ""


def shape(text: str) -> list[str]:
    """The lines of an output without what differs from run to run: numbers, widths, bars.

    A program's end is known up to two seconds later: `running` counts as `finished`.
    """
    plain = re.sub(r"[▁-█][▁-█ ]*", "~", text).replace("running", "finished")
    lines = [" ".join(re.sub(r"\S*\d\S*", "#", line).split()) for line in plain.splitlines()]
    return [line for line in lines if line and line != "..."]


def not_in(shown: str, output: str) -> list[str]:
    """The lines of an output on a page that a real one does not have, in that order."""
    rest = iter(shape(output))
    return [line for line in shape(shown) if line not in rest]


def runs(block: Block) -> bool:
    """Whether a block is one to write or run, here."""
    known = block.file or block.language in LANGUAGES
    return bool(known) and not block.reason and (not block.needs or find_spec(block.needs) is not None)


def commands(block: Block) -> str:
    """The shell program of a block: of a console, what stands behind `$`."""
    if block.language != "console":
        return block.text
    return "\n".join(line[2:] for line in block.text.splitlines() if line.startswith("$ "))


TRAIN = """
import argparse
import random

from rla_client import exp_manager, logger, time_step_holder

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.001)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--data-root", default="data")
args = parser.parse_args()
exp_manager.configure("cartpole", "rla_config.yaml", args.data_root)
exp_manager.set_hyper_param(**vars(args))
exp_manager.add_record_param(["seed", "lr"])
exp_manager.log_files_gen()
exp_manager.new_saver(max_to_keep=2)
random.seed(args.seed)
start, weights = 0, [0.0] * 8
if exp_manager.resumed_from is not None:
    start, content = exp_manager.load_checkpoint()
    weights = content["weights"]
for step in range(start + 1, args.steps + 1):
    time_step_holder.set_time(step * 100)
    weights = [weight + args.lr * random.gauss(0, 1) for weight in weights]
    logger.record_tabular("perf/return", 20 + 4000 * args.lr * step + random.random())
    logger.record_tabular("loss/policy", 1 / step + sum(weights))
    logger.record_tabular("loss/entropy", 0.7 - step / 90)
    logger.dump_tabular()
    if step % 20 == 0:
        exp_manager.save_checkpoint({"weights": weights})
"""
RUNS = [(lr, seed) for lr in (0.001, 0.0003) for seed in (1, 2)]

PIP = """
import re, sys
words = [word for word in sys.argv[1:] if not word.startswith("-")]
assert words[0] == "install" and len(words) > 1, words
text = open({pyproject!r}).read()
extras = set(re.findall(r"^(\\w+) = \\[", text[text.index("[project.optional-dependencies]"):], re.MULTILINE))
for word in words[1:]:
    named = re.fullmatch(r"(?:\\S*/)?rla-agent\\[([\\w,]+)\\]", word)
    assert not named or set(named[1].split(",")) <= extras, f"no such extra: {{word}}"
"""
SERVE = """
import signal, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
shown = ""
for line in process.stdout:
    shown += line
    if "http://" in line:
        process.send_signal(signal.SIGINT)
        break
shown += process.communicate(timeout=60)[0]
print(shown)
sys.exit(0 if "http://" in shown else 1)
"""
INTERPRETER = """
import json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    name, text = json.loads(line)
    try:
        exec(compile(text, name, "exec"), names)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    sys.stdout.flush()
    print("\\0", flush=True)
"""


def write_programs(folder: Path) -> None:
    """`rla`, `rla-agent`, `python`, `pip` and `serve` for the PATH."""
    folder.mkdir()
    pip = PIP.format(pyproject=str(ROOT / "pyproject.toml"))
    (folder / "pip.py").write_text(pip)
    (folder / "serve.py").write_text(SERVE)
    python = f'exec "{sys.executable}"'
    server = f"web|tb) {python} {folder}/serve.py {sys.executable} -m rla_client.cli.app"
    bodies = {
        "python": f'{python} "$@"',
        "pip": f'{python} {folder}/pip.py "$@"',
        "rla-agent": f'{python} -m rla_agent "$@"',
        "rla": f'case "$1" in {server} "$@";; esac\n{python} -m rla_client.cli.app "$@"',
    }
    for name, body in bodies.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)


def make_project(folder: Path, programs: Path) -> None:
    """A project with four ended runs, written by a real agent."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN.lstrip())
    runs = "\n".join(f"rla-agent run -- python train.py --lr {lr} --seed {seed}" for lr, seed in RUNS)
    with Page(folder, programs) as page:
        page.shell(f"rla init\n{runs}\n")


class Page:
    """Runs blocks in a folder; an interpreter lives from the first Python block to the end."""

    def __init__(self, folder: Path, programs: Path, assumed: Assumed = Assumed()) -> None:
        self.folder = folder
        self.assumed = assumed
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.environment = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "MPLBACKEND": "agg",
            "HOME": str(folder),
        }
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        for name, text in self.assumed.files.items():
            self._write(name, text)
        if self.assumed.setup:
            self.shell(self.assumed.setup)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the interpreter."""
        if self._python is not None:
            self._python.communicate(timeout=BLOCK_DEADLINE_S)
            assert self._python.returncode == 0
            self._python = None

    def run(self, page: Path) -> int:
        """Run all blocks of a page that are to be run; how many that were."""
        todo = [block for block in blocks(page) if runs(block)]
        shell = "\n".join(commands(block) for block in todo if block.language in LANGUAGES[1:])
        for block in todo:
            where = f"{page.name}:{block.line}"
            if block.file:
                self._write(block.file, self._replaced(block.text))
            if block.file and (block.file in shell or block.language != "python"):
                continue
            if block.language != "python":
                output = self.shell(commands(block), where)
                assert not_in(block.shows, output) == [], f"{where}: it prints\n{output}"
            elif block.file or self.assumed.alone:
                self._write(block.file or "launcher.py", self._replaced(block.text))
                self.shell(f"python {block.file or 'launcher.py'}", where)
            else:
                self.python(block.text, where)
        return len(todo)

    def shell(self, program: str, where: str = "setup") -> str:
        """Run a shell program; its output."""
        program = self._replaced(program)
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", program],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BLOCK_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, (
            f"{where}: exit {done.returncode}\n{program}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def python(self, program: str, where: str) -> None:
        """Run a block in the page's interpreter."""
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", INTERPRETER],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.folder / "stderr.txt").open("w"),
                text=True,
            )
            if self.assumed.prelude:
                self.python(self.assumed.prelude, "prelude")
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps([where, self._replaced(program)]) + "\n")
        self._python.stdin.flush()
        for line in self._python.stdout:
            if "\0" in line:
                return
        raise AssertionError(f"{where}: {(self.folder / 'stderr.txt').read_text()}\n{program}")

    def _replaced(self, program: str) -> str:
        for text, other in self.assumed.replaced.items():
            program = program.replace(text, other)
        return program

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def copy_project(project: Path, folder: Path) -> Path:
    """A project of a page's own."""
    return Path(shutil.copytree(project, folder, symlinks=True))
