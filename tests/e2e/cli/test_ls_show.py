"""`rla` where it looks: which database, which runs, and how they are shown."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.spooled import stop_autostart
from support.waiting import wait_until

from rla_client.contract.agent.places import find_places
from rla_client.database.change_signatures import RACY_NS

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]


def test_ls_in_a_pipe_is_whole_without_colours_and_a_terminal_has_what_fits(
    rla: Rla, root: Path, make_run: MakeRun
) -> None:
    for number in range(3):
        make_run(number=number, info=f"&lr=0.1&env=a name that is long&seed={number}&more=1&and_more=2")
    done = rla("ls", "-d", str(root))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["run", "state", "step", "took"]
    assert lines[1].split()[:4] == ["2026/11/21/09-30-00-123456", "finished", "9", "1m00s"]
    assert lines[0].split()[-2:] == ["more", "and_more"]
    assert "a name that is long" in lines[1]
    assert "\x1b" not in done.stdout
    fitting = rla("ls", "-d", str(root), columns=80)
    assert max(map(len, fitting.stdout.splitlines())) <= 80
    narrow = rla("ls", "-d", str(root), columns=40)
    assert max(map(len, narrow.stdout.splitlines())) <= 40
    assert "2026/11/21/09-30-00-123456" in narrow.stdout


def test_ls_json_and_csv(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run(info="&lr=0.1", params={"lr": 0.1})
    (row,) = json.loads(rla("ls", "-d", str(root), "--json").stdout)
    assert (row["run"], row["lr"], row["step"], row["table"]) == (index, 0.1, 9, "task")
    (cells,) = csv.DictReader(io.StringIO(rla("ls", "-d", str(root), "--csv").stdout))
    assert cells["run"] == index


def test_ls_sorts_filters_and_chooses_columns(rla: Rla, root: Path, make_run: MakeRun) -> None:
    for number, lr in enumerate([0.5, 0.1, 0.3]):
        make_run(number=number, params={"lr": lr}, rows=number + 1)
    done = rla("ls", "task", "-d", str(root), "-c", "lr,step,return", "--sort", "-lr", "-w", "lr > 0.2")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["lr", "step", "return"],
        ["0.5", "0", "0"],
        ["0.3", "2", "1"],
    ]
    (table,) = root.glob("log/task/2026/11/21/09-30-01*/progress.csv")
    table.write_text("return,time-step,timestamp\nnan,0,1\n")
    done = rla("ls", "task", "-d", str(root), "-c", "return", "--sort", "return", "--csv")
    assert done.stdout.split() == ["return", "nan", "0.0", "1.0"]
    assert len(rla("ls", "-d", str(root), "-n", "2").stdout.splitlines()) == 3
    assert "no runs" in rla("ls", "-d", str(root), "-w", "lr == 77").stdout


@pytest.mark.slow
def test_the_database_of_a_project_without_config_is_found(rla: Rla, tmp_path: Path) -> None:
    program = "import rla_client; rla_client.init('task', config={'lr': 0.5}, track=['lr'])"
    stop_autostart(find_places())  # the run's own files are enough
    assert "no database here" in rla("ls", cwd=tmp_path).stderr
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert "lr" in rla("ls", cwd=tmp_path).stdout


@pytest.mark.slow
def test_the_database_is_found_beside_the_config(
    rla: Rla, tmp_path: Path, root: Path, make_run: MakeRun
) -> None:
    make_run()
    (tmp_path / "rla_config.yaml").write_text("")
    deep = tmp_path / "src" / "deep"
    deep.mkdir(parents=True)
    assert "09-30-00" in rla("ls", cwd=deep).stdout
    assert "09-30-00" in rla("ls", cwd=root / "log").stdout
    lost = rla("ls", cwd=Path("/"))
    assert lost.returncode == 1
    assert "--data-root" in lost.stderr
    assert "Traceback" not in lost.stderr


@pytest.mark.parametrize("what", [("ls", "--columns", "zz"), ("ls", "--sort", "zz"), ("show", "-m", "zz")])
def test_errors_that_name_what_there_is_hold_no_control_characters(
    what: tuple[str, ...], rla: Rla, root: Path, make_run: MakeRun
) -> None:
    make_run(params={"lr": 0.1, "evil\x1b[31m\u202e": 1})
    table = next((root / "log").rglob("progress.csv"))
    header, *lines = table.read_text().splitlines()
    rows = [header + ",m\x1b]0;x\x07", *(f"{line},1" for line in lines)]
    table.write_text("\n".join(rows) + "\n")
    done = rla(*what, "-d", str(root))
    assert done.returncode in {1, 2}
    assert "zz" in done.stderr
    assert "m?]0;x?" in done.stderr or "evil?[31m?" in done.stderr
    assert not {"\x1b", "\x07", "\u202e"} & {*done.stderr, *done.stdout}


@pytest.mark.slow
def test_show_tells_everything(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(params={"lr": 0.1, "evil": "\x1b[31mred\u202e"}, rows=100)
    rla("show", "-d", str(root))
    text = rla("show", "-d", str(root)).stdout  # this time from what is cached
    for piece in (
        "finished",
        "time-step  99",
        "hyper-parameters",
        "return",
        "checkpoint_100.pt",
        "█",
        "49.5",
    ):
        assert piece in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "timestamp" not in text
    assert " in 0 file(s)" not in text
    assert max(map(len, text.splitlines())) <= 80
    facts = json.loads(rla("show", "-d", str(root), "--json").stdout)
    assert facts["metrics"]["return"] == 49.5


def test_show_names_the_tables_of_workers(rla: Rla, root: Path, make_run: MakeRun) -> None:
    folder = root / "log" / "task" / make_run()
    for name in ("progress.p7.csv", "progress.rank1.csv", "progress.old-1.csv", "log.p7.txt"):
        (folder / name).write_text("x,time-step\n1,0\n")
    assert "progress.p7.csv, progress.rank1.csv\n" in rla("show", "-d", str(root)).stdout
    told = json.loads(rla("show", "--json", "-d", str(root)).stdout)
    assert told["worker_tables"] == ["progress.p7.csv", "progress.rank1.csv"]


def test_show_and_ls_import_no_pandas(root: Path, make_run: MakeRun) -> None:
    make_run()
    for command in ("ls", "show"):
        script = (
            "import sys; from rla_client.cli.app import main\n"
            f"sys.argv = ['rla', {command!r}, '-d', {str(root)!r}]\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "heavy = {'pandas', 'numpy', 'matplotlib', 'torch', 'zmq'} & set(sys.modules)\n"
            "print(sorted(heavy), file=sys.stderr)"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        )
        heavy = done.stderr.strip().splitlines()[-1]
        assert "pandas" not in heavy
        assert "matplotlib" not in heavy


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything")
def test_what_others_keep_to_themselves_does_not_hide_the_rest(root: Path, make_run: MakeRun) -> None:
    for number, table in enumerate(("open", "open", "closed")):
        make_run(number=number, table=table, kinds=("log",))
    mine, theirs = sorted(root.glob("log/open/2026/11/21/*"))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    humble = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [*humble, sys.executable, "-m", "rla_client.cli.app", "ls", "--json", "-d", str(root)]
    folders = (theirs, root / "log" / "closed")
    try:
        for folder in folders:
            folder.chmod(0)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert [row["value"] for row in json.loads(done.stdout)] == [4.5, None]
    assert done.stderr == f"warning: left out, as you may not read it: {root}/log/closed\n"
    again = json.loads(subprocess.run(command, capture_output=True, env=environment, check=True).stdout)
    assert [row["value"] for row in again] == [4.5, 4.5, 4.5]
    assert mine.name in again[0]["run"]


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("below", ["2026", "2026/11", "2026/11/21"])
def test_a_closed_day_is_told_of_at_each_look(root: Path, make_run: MakeRun, below: str, known: bool) -> None:
    for number, table in enumerate(("open", "closed")):
        make_run(number=number, table=table, kinds=("log",))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    humble = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    command = [*humble, sys.executable, "-m", "rla_client.cli.app", "ls", "--json", "-d", str(root)]
    folder = root / "log" / "closed" / below

    def tables() -> tuple[list[str], str]:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return [row["table"] for row in json.loads(done.stdout)], done.stderr

    if known:  # the catalogue keeps what it has seen of a day that has rested so long
        rested = folder.stat().st_ctime_ns + RACY_NS
        wait_until(lambda: time.time_ns() > rested, 10, "the day at rest")
    assert sorted(tables()[0]) == ["closed", "open"]
    folder.chmod(0)
    try:
        for _ in range(2):
            assert tables()[0] == ["open"]
            assert f"left out, as you may not read it: {folder}" in tables()[1]
        folder.chmod(0o400)  # what can be listed, but not entered
        assert "open" in tables()[0]
    finally:
        folder.chmod(0o755)
    assert sorted(tables()[0]) == ["closed", "open"]


def test_a_closed_pipe_is_no_error(root: Path, make_run: MakeRun) -> None:
    for number in range(60):
        make_run(number=number, kinds=("log",), rows=1)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    line = f"{sys.executable} -m rla_client.cli.app ls --json -d '{root}' | head -1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[\n"
    assert done.stderr == ""


def test_on_a_terminal_states_have_colours(root: Path, make_run: MakeRun) -> None:
    make_run()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3]), "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "rla_client.cli.app", "ls", "-d", str(root)]
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=environment) as process:
        process.wait(30)
    os.close(slave)
    assert b"\x1b[36mfinished\x1b[0m" in os.read(master, 65536)
    os.close(master)


@pytest.mark.slow
def test_the_table_as_argument_or_option(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(number=1, table="one")
    make_run(number=2, table="two")
    for words in (("ls", "two"), ("ls", "-t", "two"), ("ls", "two", "--table", "two")):
        assert [row["table"] for row in json.loads(rla(*words, "--json", "-d", str(root)).stdout)] == ["two"]
    assert "one table at a time" in rla("ls", "one", "-t", "two", "-d", str(root)).stderr


def test_lists_are_shown_as_words_and_parameters_are_no_code(rla: Rla, root: Path, make_run: MakeRun) -> None:
    indices = [make_run(number=number) for number in range(2)]
    for number, index in enumerate(indices):
        folder = root / "code" / "task" / index
        (folder / "train.py").write_text("same = 1\n")
        (folder / "parameter.yaml").write_text(f"lr: {number}\n")
    rla("tag", "@last", "best", "two", "-d", str(root))
    lines = rla("ls", "-c", "tags,step", "-d", str(root)).stdout.splitlines()
    assert [line.split() for line in lines] == [["tags", "step"], ["-", "9"], ["best", "two", "9"]]
    assert "code: equal" in rla("diff", "09-30-00", "09-30-01", "-d", str(root)).stdout


@pytest.mark.slow
def test_a_column_that_no_run_has_is_named(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(params={"net": {"size": 3}})
    for words in (("-c", "run,zzz"), ("-s", "-zzz"), ("-w", "zzz > 3")):
        done = rla("ls", *words, "-d", str(root))
        assert done.returncode == 1
        assert done.stderr.startswith("error: no run has 'zzz'\nhint: there are: net.size, return")
    assert "{'size': 3}" in rla("ls", "-c", "net", "-s", "net.size", "-d", str(root)).stdout
    assert rla("ls", "-n", "-3", "-d", str(root)).returncode == 2


def test_of_several_databases_the_one_below_is_meant(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("")
    for name in ("a", "b/inner"):
        folder = (
            tmp_path / name / "log" / f"table {name[0]}" / "2026" / "11" / "21" / "09-30-00-123456_noip_&"
        )
        folder.mkdir(parents=True)
    assert "table b" in rla("ls", "-c", "table", cwd=tmp_path / "b").stdout
    several = rla("ls", cwd=tmp_path)
    assert several.returncode == 1
    assert "--data-root" in several.stderr


def test_how_a_run_ended_is_said_once(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1, state="failed")
    about = root / "log" / "task" / index / "run.json"
    for reason, shown in (
        ("exit code 3", "(exit code 3)"),
        ("ValueError: x", "(ValueError: x, exit code 3)"),
    ):
        about.write_text(json.dumps({**json.loads(about.read_text()), "reason": reason, "exit_code": 3}))
        assert f"failed {shown}" in rla("show", index, "-d", str(root)).stdout


@pytest.mark.slow
def test_an_unknown_metric_is_an_error_and_no_page(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run()
    for words in (["-m", "foo"], ["-m", "return", "-m", "foo"], ["-m", "foo", "--json"]):
        done = rla("show", "@last", *words, "-d", str(root))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[0] == "error: 2026/11/21/09-30-00-123456 has no metric 'foo'"
        assert done.stderr.splitlines()[-1].startswith("hint: there are: return")
    make_run(number=2, kinds=("hyperparameter",))
    done = rla("show", "@last", "-m", "return", "-d", str(root))
    assert (done.returncode, done.stdout) == (1, "")
    assert "no rows yet" in done.stderr


@pytest.mark.slow
def test_a_folder_that_is_no_database_is_an_error_for_each_command(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    make_run()
    bare = tmp_path / "bare"
    (bare / "figures").mkdir(parents=True)
    commands = (
        ["ls"], ["ls", "--json"], ["show"], ["du"], ["fsck"], ["trash"], ["trash", "empty"], ["tail"],
        ["tb", "--print"], ["compare"], ["export", str(tmp_path / "out.csv")], ["plot", "return"],
        ["note", "@last"], ["push"], ["verify"],
    )  # fmt: skip
    for command in commands:
        done = rla(*command, "-d", str(bare))
        assert (done.returncode, done.stdout) == (1, ""), command
        assert done.stderr.startswith(f"error: {bare} holds no database\nhint: "), command
    assert "error: " in rla("ls", "-d", str(tmp_path / "nowhere")).stderr
    for near in (tmp_path, root / "log" / "task"):
        assert rla("ls", "-d", str(near)).stderr.splitlines()[-1] == f"hint: --data-root {root}"


def test_a_database_without_runs_is_no_fault(rla: Rla, root: Path) -> None:
    (root / "log").mkdir()
    done = rla("ls", "-d", str(root))
    assert (done.returncode, done.stdout) == (0, f"no runs yet in {root}\n")


@pytest.mark.slow
def test_what_show_and_status_print_is_a_column_too(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run()
    path = root / "log" / "task" / index / "run.json"
    more = {
        "reason": "ValueError: boom",
        "exit_code": 1,
        "user": "ann",
        "pid": 7,
        "parent": {"run": "x", "time_step": 3},
    }
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    make_run(number=1, params={"reason": "a parameter"}, state=None)
    names = "run,reason,exit_code,user,pid,parent,took,began,closed,items"
    done = rla("ls", "-d", str(root), "--columns", names, columns=300)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[1:]
    assert "ValueError: boom" in first
    assert "x at 3" in first
    assert "1m00s" in first
    assert "2026-11-21 09:30:00  2026-11-21 09:31:00" in first
    assert "a parameter" in second
    rows = json.loads(rla("ls", "-d", str(root), "--columns", names, "--json").stdout)
    assert [rows[0][name] for name in ("exit_code", "pid", "took", "user")] == [1, 7, 60.0, "ann"]
    assert [rows[1][name] for name in ("exit_code", "pid", "user")] == [None, None, None]
    assert "boom" in rla("ls", "-d", str(root), "-w", "exit_code == 1", "-c", "reason").stdout


@pytest.mark.slow
def test_a_note_is_shown_whole_at_any_width(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run()
    note = (
        "the seed that went wrong after the learning rate was raised, see the plot\nand 実験ノート of Tuesday"
    )
    assert rla("note", "@last", note, "-d", str(root)).returncode == 0
    shown = rla("show", "-d", str(root), columns=40).stdout
    about = shown[: shown.index("hyper-parameters")].splitlines()
    first = next(number for number, line in enumerate(about) if line.lstrip().startswith("note "))
    assert " ".join(" ".join(about[first:]).split()) == f"note {' '.join(note.split())}"
    assert len({len(line) - len(line.lstrip()) for line in about[first + 1 :]}) == 1  # below the text's begin
    assert max(map(len, about[first:])) <= 40
    assert json.loads(rla("show", "--json", "-d", str(root)).stdout)["note"] == note
    listed = rla("ls", "-c", "run,note", "-d", str(root), columns=60).stdout.splitlines()
    assert listed[1].endswith("…")


@pytest.mark.slow
def test_a_run_without_tracked_parameters_has_a_plain_name(rla: Rla, root: Path, make_run: MakeRun) -> None:
    for number, spaces in enumerate((False, True)):
        index = make_run(number=number, info="&", spaces=spaces)
        where = ("-d", str(root))
        name = rla("show", *where, columns=200).stdout.splitlines()[0]
        assert name == f"task/{index[:-2]}"
        assert json.loads(rla("show", name, "--json", *where).stdout)["index"] == index
        assert "&" not in rla("ls", *where).stdout
    assert "&" not in rla("rm", "--table", "task", *where, columns=200).stdout
    fitting = [line for line in rla("show", "task", *where).stderr.splitlines() if line.startswith("  task/")]
    assert len(fitting) == 2
    assert not any("&" in line for line in fitting)


@pytest.mark.slow
def test_mistyped_names_are_answered_with_the_nearest(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(number=1, info="&lr=0.1&seed=3", params={"agent": {"lr": 0.1}, "seed": 3})
    make_run(number=2, info="&lr=0.2&seed=4", params={"agent": {"lr": 0.2}, "seed": 4})
    none = "none of these runs has the metric 'retrun'"
    for words, problem, hint in (
        (["ls", "-c", "run,sede"], "no run has 'sede'", "did you mean 'seed'?"),
        (["ls", "-s", "-sede"], "no run has 'sede'", "did you mean 'seed'?"),
        (["ls", "-w", "sede == 3"], "no run has 'sede'", "did you mean 'seed'?"),
        (["ls", "tsak"], f"{root} has no task table 'tsak'", "did you mean 'task'?"),
        (["show", "-t", "tsak"], f"{root} has no task table 'tsak'", "did you mean 'task'?"),
        (
            ["show", "-m", "retrun"],
            "2026/11/21/09-30-02-123456 has no metric 'retrun'",
            "did you mean 'return'?",
        ),
        (["compare", "-m", "retrun"], "no run has a metric 'retrun'", "did you mean 'return'?"),
        (["tail", "--file", "progres"], "--file knows no 'progres'", "did you mean 'progress'?"),
        (["rm", "seed=3", "--kinds", "logs"], "there is no kind 'logs'", "did you mean 'log'?"),
        (
            ["show", "sede=3"],
            "no run matches 'sede=3': no run tracks a parameter 'sede'",
            "did you mean seed=3?",
        ),
        (["ls", "--state", "faild"], "runs have no state 'faild'", "did you mean 'failed'?"),
        (
            ["plot", "return", "-r", "sede=3"],
            "no run matches 'sede=3': no run tracks a parameter 'sede'",
            "did you mean seed=3?",
        ),
        (["plot", "retrun"], none, "did you mean 'return'?"),
        (
            ["export", "x.csv", "-m", "retrun"],
            none,
            "did you mean 'return'?",
        ),
        (["plot", "return", "--group", "sede"], "no column 'sede' to group by", "did you mean 'seed'?"),
        (["show", "seed=5"], "no run matches 'seed=5': none has seed=5", "seed is 3, 4"),
        (
            ["show", "batch=5"],
            "no run matches 'batch=5': no run tracks a parameter 'batch'",
            "tracked are lr, seed; others are found by `rla ls --where 'batch == 5'`",
        ),
        (
            ["show", "env=ant"],
            "no run matches 'env=ant': no run tracks a parameter 'env'",
            """tracked are lr, seed; others are found by `rla ls --where 'env == "ant"'`""",
        ),
        (
            ["show", "@lats"],
            "no run matches '@lats'",
            "did you mean '@last'? `rla ls` lists the runs, @last is the newest",
        ),
    ):
        done = rla(*words, "-d", str(root))
        assert (done.returncode, done.stdout) == (2 if " knows no " in problem else 1, ""), words
        assert done.stderr.splitlines() == [f"error: {problem}", f"hint: {hint}"]
    for words, meant in ((["shwo"], "'show'"), (["ls", "--wher", "x"], "--where")):
        done = rla(*words)
        assert done.returncode == 2
        assert meant in done.stderr


@pytest.mark.slow
def test_the_last_part_of_a_nested_name_will_do(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(number=1, info="", params={"agent": {"lr": 0.1}, "net": {"size": 3}, "critic": {"size": 4}})
    make_run(number=2, info="", params={"agent": {"lr": 0.2}, "net": {"size": 3}})
    found = rla("ls", "-w", "lr > 0.1", "-s", "lr", "-c", "lr", "--json", "-d", str(root))
    assert json.loads(found.stdout) == [{"agent.lr": 0.2}]
    make_run(number=3, info="", params={"a.b": {"c.d": 5}})
    found = rla("ls", "-w", "`a.b.c.d` == 5", "-c", "a.b.c.d", "--json", "-d", str(root))
    assert json.loads(found.stdout) == [{"a.b.c.d": 5}]
    done = rla("ls", "-w", "size == 3", "-d", str(root))
    assert done.returncode == 1
    assert done.stderr == "error: 'size' fits 2 names\nhint: give more of one: net.size, critic.size\n"


def test_a_run_whose_end_nothing_tells_is_unknown_everywhere(rla: Rla, root: Path, make_run: MakeRun) -> None:
    make_run(number=1)
    index = make_run(number=2, state=None)  # as an imported one
    where = ("-d", str(root))
    row = rla("ls", *where).stdout.splitlines()[-1].split()
    assert row[1] == "unknown"
    for words in (("--state", "unknown"), ("--where", "state == 'unknown'")):
        (found,) = json.loads(rla("ls", "--json", *words, *where).stdout)
        assert (found["run"], found["state"]) == (index, "unknown"), words
    assert "1 finished, 1 unknown" in rla("ls", "--group", "table", *where).stdout
    assert "unknown (by the original RLA)" in rla("show", index, *where).stdout
    assert json.loads(rla("show", index, "--json", *where).stdout)["state"] == "unknown"


def test_an_imported_run_says_where_it_is_from(rla: Rla, root: Path, tmp_path: Path) -> None:
    (tmp_path / "history.csv").write_text("Step,loss\n0,1\n1,0.5\n")
    rla("import", "csv", str(tmp_path / "history.csv"), "-d", str(root))
    shown = rla("show", "-d", str(root)).stdout
    assert "state      unknown, as imported" in shown
    assert "imported   from history.csv" in shown
    assert "host" not in shown


def test_how_a_run_was_killed_is_said_once(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1, state="killed")
    path = root / "log" / "task" / index / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"reason": "killed by SIGKILL", "signal": 9}))
    shown = rla("show", "-d", str(root)).stdout
    assert "state      killed by SIGKILL\n" in shown
