"""Which files a code backup takes, and that their content is that of the call."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spooled import bare_opening, fill_spool

from rla_agent.jobs.code_job import parse_code, run_code
from rla_agent.jobs.outcome import JobOutcome
from rla_client.code.backup import back_up_code
from rla_client.code.backup_plan import BackupPlan, BackupReport
from rla_client.code.file_selection import select_files
from rla_client.config.schema import AgentConfig, load_config
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack
from rla_client.stream.outbox import Outbox


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}\n")


def chosen(plan: BackupPlan) -> list[str]:
    return sorted(name for name, _ in select_files(plan, BackupReport()))


def test_files_with_secrets_stay_out(tmp_path: Path) -> None:
    """Named by REMOTE_SETTING, or the configuration itself where it holds the password; links, too."""
    put(tmp_path, "train.py", "keys/id")
    config = tmp_path / "rla_config.yaml"
    (tmp_path / "linked").symlink_to(tmp_path / "keys" / "id")
    for password, names in (("", ["rla_config.yaml", "train.py"]), ("geheim", ["train.py"])):
        config.write_text(f"REMOTE_SETTING:\n  identity_file: {tmp_path}/keys/id\n  password: '{password}'\n")
        report = BackupReport()
        plan = BackupPlan(tmp_path, secrets=load_config(config).secret_files)
        assert sorted(name for name, _ in select_files(plan, report)) == names
        assert {name for name, _, _ in report.left_out} >= {"keys/id"}
        assert "secret" in str(report.warning())


@pytest.fixture
def outbox(places: Places) -> Iterator[Outbox]:
    made = Outbox(places, bare_opening(), AgentConfig(autostart=False))
    yield made
    made.release()


def jobs(outbox: Outbox) -> list[list[Any]]:
    assert outbox.stream_folder is not None
    found = []
    for segment in sorted(outbox.stream_folder.glob("*.seg")):
        frames = iter_frames(segment.read_bytes())
        found += [unpack(frame.payload) for frame in frames if frame.kind == FrameKind.JOB]
    return found


@pytest.fixture
def deliver(outbox: Outbox, tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Do the one job as the agent does, and read the item."""

    def deliver() -> dict[str, str]:
        ((kind, fields),) = jobs(outbox)
        item = tmp_path / "item"
        item.mkdir()
        assert kind == "code"
        assert outbox.blobs_folder is not None
        result = run_code(parse_code(fields), outbox.blobs_folder, item, tmp_path)
        assert result.outcome is JobOutcome.WRITTEN, result
        files = [path for path in item.rglob("*") if path.is_file()]
        return {str(path.relative_to(item)): path.read_text() for path in files}

    return deliver


def test_the_content_is_that_of_the_call(
    tmp_path: Path, outbox: Outbox, deliver: Callable[[], dict[str, str]]
) -> None:
    root = tmp_path / "project"
    put(root, "train.py", "pkg/deep/net.py", "pkg/übung.py")
    warnings: list[str] = []

    report = back_up_code(BackupPlan(root), outbox, tmp_path / "unused", warnings.append)
    (root / "train.py").write_text("edited later")
    (root / "pkg" / "deep" / "net.py").unlink()

    assert deliver() == {
        "train.py": "content of train.py\n",
        "pkg/deep/net.py": "content of pkg/deep/net.py\n",
        "pkg/übung.py": "content of pkg/übung.py\n",
    }
    assert (report.files, warnings) == (3, [])
    assert not (tmp_path / "unused").exists()


def test_gitignore_rules_hold_as_in_git(tmp_path: Path) -> None:
    root = tmp_path / "project"
    put(
        root,
        "a.py",
        "build/x.py",
        "src/build/y.py",
        "x.log",
        "keep.log",
        "src/z.log",
        "data/big/1.py",
        "src/data.py",
    )
    (root / ".gitignore").write_text("# comment\n/build\n*.log\n!keep.log\ndata/\n.gitignore\n")

    by_file = chosen(BackupPlan(root, ignore_file=root / ".gitignore"))
    by_name = chosen(BackupPlan(root, ignore_rules=(".gitignore", ".missingignore")))
    by_rules = chosen(BackupPlan(root, ignore_rules=("/build", "*.log", "!keep.log", "data/", ".gitignore")))

    assert by_file == ["a.py", "keep.log", "src/build/y.py", "src/data.py"]
    assert by_name == by_rules == by_file


def test_logs_beside_the_code_stay_out_unless_named_or_tracked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    outputs = ["train.log", "nohup.out", "slurm-17.out", "run.err", "stdout", "deep/log.txt"]
    kept = ["a.csv", "log.py", "notes.txt", "rule.log", "run.log", "stdout.py", "tracked.log", "wanted.log"]
    put(root, *outputs, *kept)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "tracked.log"], cwd=root, check=True)
    plan = BackupPlan(
        root, code_dirs=(".", "wanted.log"), run_files=("run.log",), ignore_rules=("!rule.log",)
    )
    assert chosen(plan) == kept
    built = BackupPlan(root, lib_mode=True, lib_dir="deep", run_files=("log.py",))
    assert chosen(built) == ["log.py", "log.txt"], "what was built is no log of a run"
    monkeypatch.setenv("PATH", "")
    assert set(chosen(plan)) == {*outputs, *kept}, "without git nobody knows what the program needs"


def test_rules_of_a_file_above_the_project_start_from_its_folder(tmp_path: Path) -> None:
    root = tmp_path / "repo" / "project"
    put(root, "a.py", "out/b.py")
    (tmp_path / "repo" / ".gitignore").write_text("/project/out\n/a.py\n")

    assert chosen(BackupPlan(root, ignore_file=Path("../.gitignore"))) == ["a.py"]


def test_data_roots_git_and_virtual_environments_are_never_copied(tmp_path: Path) -> None:
    root = tmp_path / "project"
    put(root, "a.py", ".git/config", "venv/pyvenv.cfg", "venv/lib/x.py", "pkg/__pycache__/a.pyc", "pkg/b.py")
    put(
        root,
        "given/x.csv",
        "old/log/t/x.csv",
        "old/archive_tester/t/x.pkl",
        "env/conda-meta/h",
        "logs/log/x.py",
    )

    found = chosen(BackupPlan(root, data_roots=(root / "given",)))

    assert found == ["a.py", "logs/log/x.py", "pkg/b.py"]


def test_a_project_that_is_its_own_data_root_keeps_its_code(tmp_path: Path) -> None:
    put(
        tmp_path,
        "a.py",
        "src/b.py",
        "log/t/progress.csv",
        "code/t/old.py",
        "results/t/x.png",
        "archive_tester/t/x",
    )

    assert chosen(BackupPlan(tmp_path, data_roots=(tmp_path,))) == ["a.py", "src/b.py"]


def test_lists_of_folders_and_files_and_run_files(tmp_path: Path) -> None:
    root = tmp_path / "project"
    put(root, "src/a.py", "src/sub/b.py", "config/c.yaml", "config/d.yaml", "other/e.py", "scripts/run.py")
    put(tmp_path, "shared/f.py")
    plan = BackupPlan(
        root, code_dirs=("src", "config/c.yaml", "src/sub", "../shared"), run_files=("scripts/run.py",)
    )

    assert chosen(plan) == ["config/c.yaml", "run.py", "shared/f.py", "src/a.py", "src/sub/b.py"]


def test_lib_mode_takes_the_content_of_lib_dir(tmp_path: Path) -> None:
    put(tmp_path, "build/lib/pkg/a.py", "build/lib/setup.py", "pkg/a.py", "run.py")

    plan = BackupPlan(tmp_path, lib_mode=True, lib_dir="./build/lib/", run_files=("run.py",))

    assert chosen(plan) == ["pkg/a.py", "run.py", "setup.py"]
    report = BackupReport()
    select_files(BackupPlan(tmp_path, lib_mode=True, lib_dir="build/lib"), report)
    assert "run_file" in str(report.warning()), "the library alone does not run"


def test_large_files_and_what_is_past_the_total_are_listed_with_one_warning(
    tmp_path: Path, outbox: Outbox, deliver: Callable[[], dict[str, str]]
) -> None:
    root = tmp_path / "project"
    put(root, "a.py", "z.py")
    with (root / "b_weights.bin").open("wb") as file:
        file.truncate((8 << 20) + 1)
    for number in range(13):
        with (root / f"c{number:02}.bin").open("wb") as file:
            file.truncate(8 << 20)
    warnings: list[str] = []

    report = back_up_code(BackupPlan(root), outbox, tmp_path, warnings.append)

    assert [name for name, _, _ in report.left_out] == ["b_weights.bin", "c12.bin"]
    assert report.left_out[0][1:] == ((8 << 20) + 1, "over 8 MiB")
    assert "past 100 MiB" in report.left_out[1][2]
    (warning,) = warnings
    assert "b_weights.bin" in warning
    assert sorted(deliver()) == ["a.py", *(f"c{number:02}.bin" for number in range(12)), "z.py"]


def test_nothing_of_this_stops_a_run(
    tmp_path: Path, outbox: Outbox, deliver: Callable[[], dict[str, str]]
) -> None:
    root = tmp_path / "project"
    put(root, "a.py")
    os.mkfifo(root / "pipe")
    (root / "dangling").symlink_to("nowhere")
    (root / "loop").symlink_to(root)
    (root / "linked.py").symlink_to(root / "a.py")
    (root / "circle").symlink_to("circle")
    for name in (b"bad-\xff.py", b"Icon\r"):
        with open(os.path.join(os.fsencode(root), name), "wb") as file:
            file.write(b"x")
    warnings: list[str] = []
    plan = BackupPlan(root, code_dirs=(".", "missing"), run_files=("gone.py",), ignore_file=Path("no.ignore"))

    report = back_up_code(plan, outbox, tmp_path, warnings.append)

    assert sorted(deliver()) == ["a.py", "linked.py"]
    assert report.files == 2
    (warning,) = warnings
    for told in ("missing", "gone.py", "no.ignore", r"bad-\udcff.py (its name", r"Icon\r (its name"):
        assert told in warning


def test_without_a_spool_the_files_are_copied_at_once(tmp_path: Path) -> None:
    root = tmp_path / "project"
    put(root, "a.py", "pkg/b.py")
    item = tmp_path / "item"
    item.mkdir()

    back_up_code(BackupPlan(root), None, item, pytest.fail)

    assert (item / "a.py").read_text() == "content of a.py\n"
    assert (item / "pkg" / "b.py").read_text() == "content of pkg/b.py\n"


def test_a_refusing_spool_means_copies_and_one_warning(tmp_path: Path, outbox: Outbox) -> None:
    root = tmp_path / "project"
    put(root, "a.py")
    item = tmp_path / "item"
    item.mkdir()
    assert outbox.stream_folder is not None
    (outbox.stream_folder / "blobs").write_text("in the way")
    warnings: list[str] = []

    report = back_up_code(BackupPlan(root), outbox, item, warnings.append)

    assert ((item / "a.py").exists(), report.files, len(warnings), jobs(outbox)) == (True, 1, 1, [])


def test_a_full_spool_means_copies(tmp_path: Path, outbox: Outbox) -> None:
    root, item = tmp_path / "project", tmp_path / "item"
    put(root, "a.py")
    item.mkdir()
    ballast = fill_spool(outbox)

    report = back_up_code(BackupPlan(root), outbox, item, lambda _text: None)

    assert ((item / "a.py").exists(), report.files, jobs(outbox)) == (True, 1, [])
    assert list(ballast.parent.glob("blobs/*")) == []


def test_a_thousand_files(tmp_path: Path, outbox: Outbox) -> None:
    root = tmp_path / "project"
    for number in range(1000):
        path = root / f"p{number % 40}" / f"s{number % 4}" / f"m{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(5000))
    (root / ".gitignore").write_text("*.pyc\n/build\ndata/\n!keep\n**/results/**\n")

    started = time.process_time()  # other loads of the machine do not count
    report = back_up_code(BackupPlan(root, ignore_rules=(".gitignore",)), outbox, tmp_path, pytest.fail)

    assert report.files == 1001
    print(f"1,001 files took {time.process_time() - started:.3f} s of CPU; a run may wait for 0.15")  # noqa: T201
