"""What `rla diff` says of code: lines of sources alone, and whether there is any."""

from __future__ import annotations

import json
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_client.code.launch_archive import capture
from rla_client.database.compare.code_diff import MAX_CODE_BYTES, code_diff, has_code

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "a", tmp_path / "b"
    for number, folder in enumerate(found):
        folder.mkdir()
        (folder / "train.py").write_text(f"lr = {number}\n")
    return found


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plot.png", b"\x89PNG\r\n\x1a\n\0"),
        ("fonts.pdf", b"%PDF-1.4\nno NUL in here\n"),
        ("runs.csv", b"a,b\n1,2\n"),
        ("curves.jsonl", b'{"a": 1}\n'),
        ("plot.SVG", b"<svg>\n</svg>\n"),
        ("latin.py", b"# \xe9\n"),
        ("codes.txt", b"\x01\x02\n"),
        ("pictures.ipynb", b'{"image/png": "' + b"A" * 6000 + b'"}\n'),
        ("__init__.py", b""),
    ],
)
def test_results_and_data_are_named_and_not_printed(
    folders: tuple[Path, Path], name: str, content: bytes
) -> None:
    (folders[1] / name).write_bytes(content)
    lines = code_diff(*map(str, folders)).splitlines()
    assert f"files differ: {name}" in lines
    assert "+lr = 1" in lines
    assert len(lines) == 6


def test_large_files_are_compared_without_being_held_in_memory(folders: tuple[Path, Path]) -> None:
    whole = bytes(range(32, 96)) * (40 << 14)  # 40 MiB
    for folder, last in zip(folders, (b"1", b"2"), strict=True):
        (folder / "same.bin").write_bytes(whole)
        (folder / "other.bin").write_bytes(whole + last)
    tracemalloc.start()
    try:
        diff = code_diff(*map(str, folders))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "files differ: other.bin" in diff
    assert "same.bin" not in diff
    assert most < 4 * MAX_CODE_BYTES


def test_the_archive_of_a_launcher_is_no_code(folders: tuple[Path, Path]) -> None:
    names = ("launch_archive.tar.xz", "launch_archive.tar", "launch_manifest.json")
    for folder in folders:
        for name in names:
            (folder / name).write_text(str(folder))
    diff = code_diff(*map(str, folders))
    assert "+lr = 1" in diff
    assert "launch_" not in diff
    (folders[0] / "train.py").unlink()
    assert not has_code(str(folders[0]))


def test_odd_characters_in_sources_end_no_line(folders: tuple[Path, Path]) -> None:
    for number, folder in enumerate(folders):
        (folder / "train.py").write_text(f"page = 1\x0c\ntext = 'a\u2028b'\nlr = {number}")
    lines = code_diff(*map(str, folders)).split("\n")
    assert [line for line in lines if line.startswith(("-", "+"))][2:] == ["-lr = 0", "+lr = 1"]
    assert " text = 'a\u2028b'" in lines


@pytest.mark.slow
def test_equal_and_not_stored_are_told_apart(rla: Rla, root: Path, make_run: MakeRun) -> None:
    indices = [make_run(number=number) for number in range(3)]
    code = [root / "code" / "task" / index for index in indices]
    for folder in code:
        (folder / "train.py").write_text("same = 1\n")
    where = ("09-30-00", "09-30-01", "-d", str(root))
    assert rla("diff", *where).stdout.splitlines()[-1] == "code: equal"
    (code[1] / "train.py").unlink()
    (code[1] / "parameter.yaml").write_text("lr: 0.1\n")  # no code
    assert rla("diff", *where).stdout.splitlines()[-1] == "code: not stored for 2026/11/21/09-30-01-123456"
    (code[0] / "train.py").unlink()
    code[0].rmdir()
    both = "code: not stored for 2026/11/21/09-30-00-123456 and 2026/11/21/09-30-01-123456"
    assert rla("diff", *where).stdout.splitlines()[-1] == both
    content = json.loads(rla("diff", "--json", *where).stdout)
    assert (content["code"], len(content["code_not_stored"])) == ("", 2)
    assert "code" not in rla("diff", "--no-code", *where).stdout
    assert [has_code(str(folder)) for folder in code] == [False, False, True]


@pytest.mark.slow
def test_runs_that_have_only_a_launchers_archive_are_compared_by_it(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    launcher = tmp_path / "launcher.py"
    code = [root / "code" / "task" / make_run(number=number) for number in range(3)]
    for number, folder in enumerate(code):
        launcher.write_text(f"lr = {number}\n")
        capture(folder, None, launcher)
    where = ("09-30-00", "09-30-01", "-d", str(root))
    assert "+seed = 1" in rla("diff", *where).stdout  # there is the code itself
    (code[1] / "train.py").unlink()
    assert rla("diff", *where).stdout.splitlines()[-2:] == ["-lr = 0", "+lr = 1"]
    assert json.loads(rla("diff", "--json", *where).stdout)["code_not_stored"] == []
    for name in ("launch_archive.tar.xz", "launch_manifest.json"):
        (code[0] / name).unlink()
    told = rla("diff", *where).stdout.splitlines()
    assert told[-2] == "code: not stored for 2026/11/21/09-30-01-123456"
    assert told[-1].endswith("has a launcher's archive, which `rla restore-code` unpacks")
    (code[2] / "train.py").unlink()
    (code[2] / "launch_archive.tar.xz").write_bytes(b"damaged")
    damaged = rla("diff", "09-30-01", "09-30-02", "-d", str(root))
    assert (damaged.returncode, "cannot be read" in damaged.stderr) == (1, True)


def test_control_characters_of_sources_never_reach_the_terminal(
    rla: Rla, root: Path, make_run: MakeRun
) -> None:
    for number in range(2):
        index = make_run(number=number)
        (root / "code" / "task" / index / "train.py").write_text(f"x =\t'\x1b[31mred {number}'\n")
    out = rla("diff", "09-30-00", "09-30-01", "-d", str(root)).stdout
    assert "+x =\t'?[31mred 1'" in out.splitlines()
    assert "\x1b" not in out


@pytest.mark.slow
def test_what_rla_plots_and_exports_is_in_no_later_backup(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    from rla_client.code.backup_plan import BackupPlan, BackupReport
    from rla_client.code.file_selection import select_files

    make_run()
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("")
    for words in (("plot", "return"), ("export", "runs.csv"), ("export", "c.jsonl", "-m", "return")):
        done = rla(*words, "-d", str(root), cwd=project)
        assert done.returncode == 0, done.stderr
    assert len(list(project.iterdir())) == 4
    plan = BackupPlan(project, data_roots=(root,))
    assert [name for name, _ in select_files(plan, BackupReport())] == ["train.py"]
