"""`rla` where it does something: compare, tag, remove, archive, plot, export; and its help."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from rla_client.cli.app import COMMAND_MODULES
from rla_client.contract.text.terminal_text import text_width

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_diff_compare_tail_tag_note(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(number=1, params={"lr": 0.1, "same": 1})
    make_run(number=2, params={"lr": 0.2, "same": 1})
    text = rla("diff", "09-30-01", "09-30-02", "-d", str(root)).stdout
    assert "+seed = 2" in text
    table = rla("diff", "09-30-01", "09-30-02", "--csv", "-d", str(root)).stdout
    (row,) = csv.DictReader(io.StringIO(table))
    assert (row["section"], row["name"], *list(row.values())[2:]) == ("hyper-parameters", "lr", "0.1", "0.2")
    assert json.loads(rla("diff", "09-30-01", "09-30-02", "--json", "-d", str(root)).stdout)["code"] in text
    assert "same" not in text
    lines = rla("compare", "-m", "return", "-d", str(root)).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["run", "lr", "return"],
        ["2026/11/21/09-30-01-123456", "0.1", "4.5"],
        ["2026/11/21/09-30-02-123456", "0.2", "4.5"],
    ]
    assert rla("tail", "-n", "1", "-d", str(root)).stdout == "last line\n"
    assert (
        rla("tail", "-n", "2", "--file", "progress", "-d", str(root))
        .stdout.splitlines()[-1]
        .startswith("4.5,9,")
    )
    assert "best" in rla("tag", "@last", "best", "two", "-d", str(root)).stdout
    rla("tag", "@last", "two", "--remove", "-d", str(root))
    rla("note", "@last", "what a run", "-d", str(root))
    assert rla("note", "@last", "-d", str(root)).stdout == "what a run\n"
    assert "09-30-02" in rla("ls", "-w", "'best' in tags and 'two' not in tags", "-d", str(root)).stdout
    assert rla("tag", "@last", "no, commas", "-d", str(root)).returncode == 1
    assert "best, of the paper" in rla("tag", "@last", "of the paper", "-d", str(root)).stdout


@pytest.mark.slow
def test_rm_asks_refuses_live_runs_and_can_be_undone(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1)
    make_run(number=2, state="running")
    folder = root / "log" / "task" / index
    silent = rla("rm", "09-30-01", "-d", str(root))
    assert silent.returncode == 1
    assert "--yes" in silent.stderr
    assert folder.is_dir()
    live = rla("rm", "09-30-02", "-y", "-d", str(root))
    assert live.returncode == 1
    assert "being written" in live.stderr
    assert rla("rm", "-y", "-d", str(root)).returncode == 1
    done = rla("rm", "09-30-01", "-y", "-d", str(root))
    assert "1 run(s), 7 item(s)" in done.stdout
    assert "Moved to trash (" in done.stdout
    assert not folder.exists()
    assert "(trash)" in rla("du", "-d", str(root)).stdout
    (entry,) = json.loads(rla("trash", "--json", "-d", str(root)).stdout)
    assert entry["paths"] == 7
    assert rla("trash", "restore", entry["entry"], "-d", str(root)).returncode == 0
    assert folder.is_dir()
    rla("rm", "09-30-01", "-y", "-d", str(root))
    assert "freed" in rla("trash", "empty", "-y", "-d", str(root)).stdout
    assert "empty" in rla("trash", "-d", str(root)).stdout


@pytest.mark.slow
def test_archive_and_migrate(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run()
    assert "copied 7 item(s) to arc/" in rla("archive", "@last", "-y", "-d", str(root)).stdout
    assert "7 already there" in rla("archive", "@last", "-y", "-d", str(root)).stdout
    assert "09-30-00" in rla("ls", "--archived", "-d", str(root)).stdout
    assert (
        "copied 7 item(s) to table new/one"
        in rla("migrate", "new/one", "-t", "task", "-y", "-d", str(root)).stdout
    )
    assert "09-30-00" in rla("ls", "new/one", "-d", str(root)).stdout
    assert rla("migrate", "../x", "-t", "task", "-y", "-d", str(root)).returncode == 1


@pytest.mark.slow
def test_plot_export_tb(rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    for number in range(4):
        make_run(number=number, params={"lr": 0.1 * (1 + number % 2)})
    for name in ("a.png", "b.pdf", "c.svg"):
        done = rla("plot", "return", "-g", "lr", "-o", str(tmp_path / name), "-d", str(root))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).stat().st_size > 1000
    wrong = rla("plot", "nope", "-o", str(tmp_path / "x.png"), "-d", str(root))
    assert wrong.returncode == 1
    assert "metric" in wrong.stderr
    assert rla("export", str(tmp_path / "runs.csv"), "-d", str(root)).returncode == 0
    assert len(list(csv.DictReader((tmp_path / "runs.csv").open()))) == 4
    assert rla("export", str(tmp_path / "c.jsonl"), "-m", "return", "-d", str(root)).returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert len(rows) == 40
    assert rows[0]["value"] == 0.0
    none = rla("tb", "--print", "-d", str(root))
    assert none.returncode == 1
    assert "TensorBoard" in none.stderr


@pytest.mark.slow
def test_tensorboard_serves_the_chosen_runs_and_ends_with_us(
    root: Path, make_run: MakeRun, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboardX import SummaryWriter

    for number in range(3):
        index = make_run(number=number, kinds=("log", "hyperparameter"), params={"lr": number})
        with SummaryWriter(str(root / "log" / "task" / index / "tb" / "events")) as writer:
            writer.add_scalar("loss", 0.5, 1)
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }
    command = [
        sys.executable,
        "-m",
        "rla_client.cli.app",
        "tb",
        "-w",
        "lr > 0",
        "--port",
        "0",
        "-d",
        str(root),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "http://127.0.0.1:" in line)
        address = "http://127.0.0.1:" + line.split("http://127.0.0.1:")[1].split("/")[0]

        def served() -> list[str]:
            with urllib.request.urlopen(f"{address}/data/runs") as answer:
                return list(json.load(answer))

        assert wait_until(lambda: len(served()) == 2 and served())
        assert all(name.endswith("/events") and "09-30-00" not in name for name in served())
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.wait(30)
    assert list(tmp_path.glob("rla-tb-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "",
        "ls",
        "show",
        "tail",
        "diff",
        "compare",
        "plot",
        "tag",
        "note",
        "rm",
        "archive",
        "migrate",
        "export",
        "du",
        "fsck",
        "tb",
        "trash",
        "import",
    ],
)
def test_help_reads_well(rla: Rla, command: str) -> None:
    done = rla(*([command] if command else []), "--help")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Usage" in done.stdout


def test_each_module_is_asked_for_by_its_commands() -> None:
    for command, name in COMMAND_MODULES.items():
        app = typer.Typer()
        importlib.import_module(name).register(app)
        made = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback}
        made |= {group.name for group in app.registered_groups if group.name}
        assert made == {command}, name


@pytest.mark.slow
def test_wrong_values_are_told_apart_from_right_ones(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    make_run()
    for words in (("ls", "-n", "x"), ("plot", "return", "--smooth", "x"), ("import", "csv", "/nowhere")):
        done = rla(*words, "-d", str(root))
        assert done.returncode == 2, words
        assert "Invalid value" in done.stderr
    assert (
        rla("plot", "return", "--bound", "3.5", "-o", str(tmp_path / "x.png"), "-d", str(root)).returncode
        == 0
    )
    assert rla("show", "-m", "return", "-m", "time-step", "-d", str(root)).stdout.count("│") == 16


HOSTILE = [
    ("&info=with spaces and = signs&lr=0.1", True),
    ("&name=" + "ü\u7535\u8def" * 20, False),
    ("&long=" + "x" * 170, False),
    ("&cmd=$(rm -rf x);`id`'\"&-rf=--yes%s{kind}{0}[a]*?", False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("info", "spaces"), HOSTILE)
def test_names_that_are_not_easy_go_through_every_command(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path, info: str, spaces: bool
) -> None:
    index = make_run(info=info, table="a table/ü", spaces=spaces)
    assert 30 < len(index.rsplit("/", 1)[1]) <= 230
    before = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    where = ("-d", str(root))
    (row,) = json.loads(rla("ls", "--json", *where).stdout)
    assert row["run"] == index
    words: tuple[str, ...]
    for words in (("ls",), ("show", index), ("fsck",)):
        done = rla(*words, *where, columns=80)
        assert done.returncode == 0, done.stderr
        assert max(map(text_width, done.stdout.splitlines())) <= 80
    for words in (("archive", index, "-y"), ("migrate", "ünicode {table}", index, "-t", "a table/ü", "-y")):
        assert "copied 7 item(s)" in rla(*words, *where).stdout
    assert (
        rla(
            "plot", "return", "-r", index, "-t", "a table/ü", "-o", str(tmp_path / "ü x.pdf"), *where
        ).returncode
        == 0
    )
    done = rla("rm", index, "-t", "a table/ü", "-y", *where)
    entry = done.stdout.split()[-1]
    assert rla("trash", "restore", entry, *where).returncode == 0
    after = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert set(before) <= after
    archived = {name.removeprefix("arc/") for name in after if name.startswith("arc/")}
    assert archived == set(before)


@pytest.mark.slow
def test_parquet_holds_the_runs_and_the_curves(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    import pandas as pd

    for number in range(3):
        make_run(
            number=number, params={"lr": 0.1 * number, "mixed": [1, "a"][number % 2], "net": {"size": [3]}}
        )
    rla("tag", "@last", "best", "-d", str(root))
    done = rla("export", str(tmp_path / "runs.parquet"), "-d", str(root))
    assert done.returncode == 0, done.stderr
    runs = pd.read_parquet(tmp_path / "runs.parquet")
    assert runs["lr"].tolist() == [0.0, 0.1, 0.2]
    assert runs["tags"].tolist() == ["[]", "[]", '["best"]']
    assert runs["mixed"].tolist() == ["1", "a", "1"]
    assert rla("export", str(tmp_path / "c.parquet"), "-m", "return", "-d", str(root)).returncode == 0
    curves = pd.read_parquet(tmp_path / "c.parquet")
    assert curves["value"].tolist() == [step * 0.5 for step in range(10)] * 3
    assert curves["index"].nunique() == 3


@pytest.mark.slow
def test_the_trash_names_runs_and_gives_single_ones_back(rla: Rla, root: Path, make_run: MakeRun) -> None:
    first, second = make_run(number=1, info="&seed=1"), make_run(number=2, info="&seed=2")
    third = make_run(number=3, table="other")
    where = ("-d", str(root))
    rla("rm", "-t", "task", "-y", *where)
    rla("rm", "09-30-03", "-y", *where)
    rows = rla("trash", *where).stdout.splitlines()
    assert rows == rla("trash", "list", *where).stdout.splitlines()
    assert [row.split("  ")[0] for row in rows] == ["run", f"{first[:26]} +1", third[:26]]
    assert [row.split()[-1] for row in rows] == ["table", "task", "other"]  # a pipe gets all columns
    assert "2 runs in the trash fit" in rla("trash", "restore", "seed=", *where).stderr
    assert rla("trash", "restore", "seed=2", *where).returncode == 0
    assert [row["run"] for row in json.loads(rla("ls", "--json", *where).stdout)] == [second]
    assert (root / "archive_tester" / "task" / f"{second}.json").is_file()
    assert rla("trash", "restore", "seed=1", *where).returncode == 0
    assert rla("trash", "restore", third, *where).returncode == 0
    assert rla("trash", *where).stdout == "the trash is empty\n"
    assert rla("fsck", *where).returncode == 0
    missing = rla("trash", "restore", "nope", *where)
    assert (missing.returncode, "rla trash" in missing.stderr) == (1, True)


@pytest.mark.slow
def test_a_project_without_runs_is_no_fault(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    assert rla("init", cwd=tmp_path / "p").returncode == 0
    done = rla("ls", cwd=tmp_path / "p")
    assert (done.returncode, done.stdout) == (0, f"no runs yet in {tmp_path / 'p' / 'data'}\n")
    done = rla("ls", "--json", cwd=tmp_path / "p")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert rla("show", cwd=tmp_path / "p").returncode == 1
    assert rla("ls", cwd=tmp_path).returncode == 1  # no project either


@pytest.mark.slow
def test_an_archive_of_nothing_is_no_fault(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run()
    done = rla("ls", "--archived", "-d", str(root))
    assert (done.returncode, "nothing is archived yet" in done.stdout) == (0, True)
    assert json.loads(rla("ls", "--archived", "--json", "-d", str(root)).stdout) == []


@pytest.mark.slow
def test_a_plot_replaces_no_file_that_it_did_not_write(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    make_run(number=1)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert rla("plot", "return", "-d", str(root)).returncode == 0
    Path("plot.png").write_bytes(b"of somebody else")
    refused = rla("plot", "return", "-d", str(root))
    assert refused.returncode == 1
    assert "plot.png is there and is not from rla plot; name a file" in refused.stderr
    assert Path("plot.png").read_bytes() == b"of somebody else"
    assert rla("plot", "return", "-o", "plot.png", "-d", str(root)).returncode == 0
    assert Path("plot.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_plots_line_says_what_was_averaged(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    make_run(number=1, state="killed")
    make_run(number=2, table="other", rows=5)
    make_run(number=3, table="other")
    bare = make_run(number=4)
    (root / "log" / "task" / bare / "progress.csv").write_text("loss,time-step\n1,1\n")
    done = rla("plot", "return", "-o", str(tmp_path / "p.png"), "-d", str(root))
    assert done.returncode == 0, done.stderr
    assert "3 run(s) in 2 curve(s); mean, 95 % CI; 1 without the metric left out" in done.stdout
    assert "each of 2 tables; with 1 killed; runs of different length" in done.stdout
    assert (
        rla("plot", "return", "--band", "none", "-o", str(tmp_path / "p.png"), "-d", str(root)).returncode
        == 0
    )


def test_a_value_with_an_ampersand_makes_no_column(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(info="&name=a&b=c&seed=3", params={"name": "a&b=c", "seed": 3})
    where = ("-d", str(root))
    assert rla("ls", *where, columns=120).stdout.splitlines()[0].split() == [
        "run",
        "state",
        "step",
        "took",
        "return",
        "name",
        "seed",
    ]
    (row,) = json.loads(rla("ls", "--json", *where).stdout)
    assert (row["name"], row["seed"], "b" in row) == ("a&b=c", 3, False)


def test_tags_are_exported_as_words(rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    make_run(number=1)
    make_run(number=2)
    rla("tag", "09-30-01", "best", "two", "-d", str(root))
    rla("export", str(tmp_path / "runs.csv"), "-d", str(root))
    assert [row["tags"] for row in csv.DictReader((tmp_path / "runs.csv").open())] == ["best,two", ""]


def test_the_version(rla: Rla) -> None:
    from rla_client import __version__

    done = rla("--version")
    assert (done.returncode, done.stdout) == (0, f"rla {__version__}\n")


@pytest.mark.slow
def test_verify_is_called_verify_and_finds_its_files(
    rla: Rla, root: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = rla("verify", "--help")
    assert "Usage: rla verify" in done.stdout
    assert "required" not in done.stdout
    make_run()
    (tmp_path / "elsewhere").mkdir()
    lacking = rla("verify", "-d", str(root), cwd=tmp_path / "elsewhere")
    assert "rla_config.yaml" in lacking.stderr
    (root / "rla_config.yaml").write_text("LOG_USED: [csv]\n")  # beside the database, not above us
    monkeypatch.setenv("RLA_DATA_ROOT", str(root))
    assert "REMOTE_SETTING" in rla("push", cwd=tmp_path / "elsewhere").stderr  # found, and names no master


@pytest.mark.slow
def test_the_folder_of_tb_print_lies_in_the_cache_and_goes_with_time(
    rla: Rla, root: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = make_run()
    events = root / "log" / "task" / index / "tb" / "events"
    events.mkdir(parents=True)
    (events / "events.out.tfevents.1.box").write_bytes(b"x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = Path(rla("tb", "--print", "-d", str(root)).stdout.strip())
    assert first.is_relative_to(tmp_path / "cache")
    assert (first / "task" / index / "events" / "events.out.tfevents.1.box").is_file()
    os.utime(first, (1e9, 1e9))
    second = Path(rla("tb", "--print", "-d", str(root)).stdout.strip())
    assert (first.exists(), second.exists()) == (False, True)
    assert (events / "events.out.tfevents.1.box").is_file()  # links go, not what they name


SELECTING = (
    "ls", "compare", "table", "metrics", "plot", "export", "tb", "du", "tag", "note", "rm", "archive",
    "migrate", "top",
)  # fmt: skip


@pytest.mark.parametrize("command", SELECTING)
def test_each_command_for_many_runs_selects_them_alike(rla: Rla, command: str) -> None:
    text = rla(command, "--help", columns=200).stdout
    for option in ("--run", "--tag", "--state", "--where", "--since", "--commit", "--table", "--limit"):
        assert f" {option} " in text, option


@pytest.mark.slow
def test_selectors_choose_the_same_runs_everywhere(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    for number in range(6):
        lr = 0.001 if number < 4 else 0.01
        state = "failed" if number == 3 else "finished"
        make_run(
            number=number, info=f"&lr={lr}&seed={number}", params={"lr": lr, "seed": number}, state=state
        )
    where = ("-d", str(root))

    def seeds(*words: str) -> list[int]:
        done = rla("ls", *words, "--columns", "seed", "--csv", *where)
        assert done.returncode == 0, done.stderr
        return [int(line) for line in done.stdout.splitlines()[1:]]

    assert rla("tag", "-r", "seed=1", "-r", "lr=0.01", "go`od", *where).returncode == 0
    assert seeds("--tag", "go`od") == [1, 4, 5]
    assert seeds("--tag", "go`od", "-r", "lr=0.01") == [4, 5]
    assert seeds("--tag", "go`od", "--where", "seed == 1 or seed == 2") == [1]
    assert seeds("--state", "failed,killed") == [3]
    assert seeds("-r", "lr=0.001", "--limit", "2") == [2, 3]
    assert seeds("-r", "@last") == [5]
    compared = rla("compare", "lr=0.001", "-m", "return", *where)
    assert (compared.returncode, len(compared.stdout.splitlines())) == (0, 5), compared.stderr
    out = str(tmp_path / "out.csv")
    assert "3 run(s)" in rla("export", out, "lr=0.001", "--state", "finished", *where).stdout
    assert "4 run(s)" in rla("plot", "return", "-r", "lr=0.001", "-o", f"{out}.png", *where).stdout
    (line, *_) = rla("du", "seed=1", "--csv", *where).stdout.splitlines()[1:]
    assert line.startswith("task,log,1,")
    assert rla("note", "--tag", "go`od", "why not", *where).returncode == 0
    assert rla("note", "seed=4", *where).stdout == "why not\n"
    assert "3 run(s)" in rla("archive", "--tag", "go`od", "-y", *where).stdout


@pytest.mark.slow
def test_what_a_selector_cannot_mean_is_said(rla: Rla, root: Path, make_run: MakeRun) -> None:
    for number in range(3):
        make_run(number=number, info=f"&lr=0.1&seed={number}")
    where = ("-d", str(root))
    for words, text in (
        (["ls", "--tag", "nope"], "no run has the tag 'nope'"),
        (["ls", "--state", "crashed"], "hint: there are: running"),
        (["ls", "--where", "lr == 1) or (seed == 1"], "is not understood"),
        (["ls", "-r", "nope"], "no run matches 'nope'"),
        (["rm", "lr=0.1", "-y"], "hint: for all of them: -r lr=0.1"),
        (["tag", "lr=0.1", "x"], "hint: for all of them: -r lr=0.1"),
        (["tag", "@last"], "no tag is given"),
        (["tag", "--state", "killed", "x"], "no run matches"),
        (["note"], "say which run"),
        (["archive"], "say which runs"),
    ):
        done = rla(*words, *where)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert text in done.stderr, words
    assert rla("rm", "-r", "lr=0.1", "--where", "seed > 0", "-y", *where).returncode == 0


@pytest.mark.parametrize(
    "asked",
    [
        ("ls", "-n", "9" * 30),
        ("sql", "SELECT 1", "-n", "9" * 30),
        ("tail", "@last", "-n", "9" * 30),
        ("tail", "@last", "-n", "-5"),
        ("report", "page.html", "--limit", "9" * 30),
        ("plot", "return", "--width", "1e9"),
    ],
)
def test_a_number_beyond_all_measure_is_refused(
    rla: Rla, root: Path, make_run: MakeRun, asked: tuple[str, ...]
) -> None:
    make_run(number=1)
    done = rla(*asked, "-d", str(root))
    assert done.returncode == 2
    assert asked[-2] in done.stderr
    assert "Traceback" not in done.stderr


def test_du_leaves_out_what_holds_nothing(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run()
    (root / "tmp_data" / "task" / index / "x.bin").unlink()
    done = rla("du", "-d", str(root))
    assert "tmp_data" not in done.stdout
    assert "1 more without a byte" in done.stderr
    assert "tmp_data" in rla("du", "-d", str(root), "--json").stdout


def test_du_of_a_continued_run_counts_all_its_items(rla: Rla, root: Path, make_run: MakeRun) -> None:
    first = make_run(number=1, kinds=("log",))
    second = make_run(number=2, kinds=("log",))
    make_run(number=3, kinds=("log",))
    path = root / "log" / "task" / second / "run.json"
    parent = {"run": first, "table": "task", "time_step": 3, "rows": 4, "chain": True}
    path.write_text(json.dumps({**json.loads(path.read_text()), "parent": parent}))
    (row,) = json.loads(rla("du", second, "--json", "-d", str(root)).stdout)
    assert (row["kind"], row["items"]) == ("log", 2)


def test_an_import_begins_the_database_of_a_project(rla: Rla, tmp_path: Path) -> None:
    rows, project = tmp_path / "a.csv", tmp_path / "project"
    rows.write_text("step,loss\n1,0.5\n")
    project.mkdir()
    done = rla("import", "csv", str(rows), cwd=project)
    assert (done.returncode, "--data-root" in done.stderr) == (1, True)  # nothing says where
    assert list(project.iterdir()) == []
    (project / "rla_config.yaml").write_text("PROJECT_TYPE: {backend_lib: pytorch}\n")
    done = rla("import", "csv", str(rows), "--table", "old", cwd=project)
    assert (done.returncode, done.stdout) == (0, "imported 1 run(s) into table old\n")
    assert f"{project / 'data'} is a new database" in done.stderr
    assert rla("import", "csv", str(rows), "--table", "old", cwd=project).stdout.endswith(
        "1 were there already\n"
    )
    assert rla("ls", "old", cwd=project).stdout.count("old") <= 1
    assert len(json.loads(rla("ls", "old", "--json", cwd=project).stdout)) == 1


@pytest.mark.slow
def test_a_renamed_run_is_shown_filtered_and_found_by_its_name(
    rla: Rla, root: Path, make_run: MakeRun
) -> None:
    for number in range(3):
        make_run(number=number, info=f"&seed={number}")
    where = ("-d", str(root))
    done = rla("rename", "seed=1", "neue Belohnung", *where)
    assert (done.returncode, done.stdout) == (0, "2026/11/21/09-30-01-123456: neue Belohnung\n")
    assert ["name", "neue", "Belohnung"] in [
        line.split() for line in rla("show", "neue Belohnung", *where).stdout.splitlines()
    ]
    assert "neue Belohnung" in rla("ls", *where).stdout
    assert (
        '"display_name": "neue Belohnung"'
        in rla("ls", "--where", "name == 'neue Belohnung'", "--json", *where).stdout
    )
    assert len(rla("ls", "-r", "neue Belohnung", "--csv", *where).stdout.splitlines()) == 2
    rla("rename", "@last", "neue Belohnung", *where)
    twice = rla("show", "neue Belohnung", *where)
    assert (twice.returncode, "2 runs match" in twice.stderr) == (1, True)
    assert "no display name" in rla("rename", "seed=1", "", *where).stdout
    assert "is not a name" in rla("rename", "seed=1", "two\nlines", *where).stderr
    assert rla("rename", "nobody", "x", *where).returncode == 1
