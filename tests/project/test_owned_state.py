"""Attributes of the agent's stateful classes are written by their own methods alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rla_agent

ROOT = Path(rla_agent.__file__).parent
OWNERS = {
    "Stream": "pipeline/stream.py",
    "BatchReader": "pipeline/batch_reader.py",
    "FileQueue": "pipeline/file_queue.py",
    "Intake": "pipeline/unrecorded_counts.py",
    "RowWatch": "pipeline/row_watch.py",
    "RunRegistry": "pipeline/run_registry.py",
    "Volume": "pipeline/volume.py",
    "Widener": "pipeline/csv_widening.py",
    "FlushWaiters": "pipeline/flush.py",
    "Quarantine": "pipeline/quarantine.py",
    "SpoolWatch": "pipeline/spool_watch.py",
    "Output": "outputs/output_file.py",
    "OpenFiles": "outputs/open_files.py",
    "Encoder": "outputs/encoder.py",
    "CsvEncoder": "outputs/csv_encoder.py",
    "EventEncoder": "outputs/tensorboard.py",
    "MetricWatch": "alerts/metric_watch.py",
    "JobQueue": "jobs/job_queue.py",
    "_Pending": "jobs/job_queue.py",
    "Sockets": "sockets.py",
    "Daemon": "daemon.py",
}
OTHERS = frozenset((
    "pieces[-1].damaged",  # a `Batch`
    "changes.outputs", "changes.firings",  # of `CommitChanges`
    "asked.retry_at",  # a configuration file
    "tally.files", "self.tally.files",  # of a transfer
    "tracked.at",  # a process
    "result.broken",  # of a drain
))  # fmt: skip
"""Written expressions whose last name an owner happens to have, too."""
MUTATORS = frozenset((
    "append", "extend", "insert", "remove", "pop", "popitem", "clear", "add", "discard", "update",
    "setdefault", "move_to_end", "appendleft", "popleft", "sort", "reverse",
))  # fmt: skip


def class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    """The class of this name."""
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def attributes_of(owner: ast.ClassDef) -> set[str]:
    """Attributes that a class declares or sets on itself."""
    declared = {
        node.target.id
        for node in owner.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return declared | {
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value)
    }


def written_in(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes that code sets, deletes, sets an element of, or calls a mutating method of."""
    for node in ast.walk(tree):
        target: ast.expr | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node.value if isinstance(node, ast.Subscript) else node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = node.func.value if node.func.attr in MUTATORS else None
        if isinstance(target, ast.Attribute):
            yield target


def foreign_writes(source: str, names: set[str]) -> list[str]:
    """Lines of a module that write one of these attributes of something else than `self`."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in written_in(ast.parse(source))
        if node.attr in names and not is_self(node.value) and ast.unparse(node) not in OTHERS
    ]


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Attributes of all owners."""
    found: set[str] = set()
    for name, path in OWNERS.items():
        own = attributes_of(class_of(ast.parse((ROOT / path).read_text(encoding="utf-8")), name))
        assert own, name
        found |= own
    return found


def test_nobody_else_writes_them(names: set[str]) -> None:
    assert {"position", "durable", "rows", "state", "file_name", "records"} <= names
    faults = [
        f"{path.relative_to(ROOT.parent)}:{fault}"
        for path in sorted(ROOT.rglob("*.py"))
        for fault in foreign_writes(path.read_text(encoding="utf-8"), names)
    ]
    assert faults == [], "give the class a method that does it"


@pytest.mark.parametrize(
    "line",
    [
        "stream.rows = 1",
        "stream.rows += 1",
        "(stream.position, other) = 1, 2",
        "side.stream.outputs = []",
        "del output.bases",
        "del output.bases[3]",
        "output.bases[3] = {}",
        "stream.new_jobs.append(job)",
        "registry.records.pop(run)",
        "for stream.rows in (1, 2): pass",
    ],
)
def test_a_foreign_write_is_found(names: set[str], line: str) -> None:
    assert len(foreign_writes(line, names)) == 1, line


@pytest.mark.parametrize(
    "line", ["self.rows = 1", "rows = stream.rows", "stream.handle(event)", "x[stream.rows] = 1"]
)
def test_what_is_none_is_not(names: set[str], line: str) -> None:
    assert foreign_writes(line, names) == []
