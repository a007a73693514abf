"""The process as it is: training, and the agent that it starts, where limits, locale or folders are odd.

Each line of the table is one environment. In all of them calls return, nothing is raised, every row is in
progress.csv once, the run counts as finished, and the exit code is the training's own.
"""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.waiting import TIME_FACTOR

from rla_client.contract.agent.places import Places

ROWS = 200
TRAINING = """
import os, sys
{before}
from rla_client import exp_manager, logger, time_step_holder

def main():
    root, code = sys.argv[1:3]
    outputs = ["csv", "tensorboard", "log", "stdout"]
    config = {{"LOG_USED": outputs, "BACKUP_CONFIG": {{"backup_code_dir": ["."]}}}}
    exp_manager.set_hyper_param(größe=0.5, note="naïve →")
    exp_manager.add_record_param(["größe", "note"])
    exp_manager.configure({table!a}, config, root, code_root=code)
    exp_manager.log_files_gen()
    saver = {torch!r} and __import__("torch")
    if saver:
        exp_manager.new_saver(2)
    {begun}
    for step in range({rows}):
        time_step_holder.set_time(step)
        logger.record_tabular("number", step)
        logger.record_tabular("perf/größe→", step / 2)
        logger.record_tabular("text", "é\\u2028\\U0001f600")
        logger.info("Schritt", step, "größe")
        logger.dump_tabular()
        if saver and step % 50 == 0:
            exp_manager.save_checkpoint({{"w": saver.full((1 << 20,), float(step))}})
    {after}

if __name__ == "__main__":
    {start}
"""


@dataclass(frozen=True)
class Case:
    """One environment.

    Attributes:
        name: of the test.
        wrap: words before the interpreter; `{tmp}` is the test's folder.
        python: options of the interpreter.
        env: variables that are set, or removed (None); `env_only`: there are no others.
        before: code before `rla_client` is imported.
        begun: code after the run was opened.
        after: code after the last row.
        start: how `main` is called.
        root: the data root, as it is given to the training.
        table: of the run.
        torch: checkpoints are saved, too.
        limits: what both standard error and `rla-agent doctor` must say, where no agent that is started from
            there can write all rows: an agent that is started elsewhere does.
        root_only: it takes root to make it.
    """

    name: str
    wrap: str = ""
    python: tuple[str, ...] = ()
    env: dict[str, str | None] = field(default_factory=dict)
    env_only: bool = False
    before: str = ""
    begun: str = "pass"
    after: str = "pass"
    start: str = "main()"
    root: str = "{tmp}/data"
    rows: int = ROWS
    table: str = "tafel-ä"
    torch: bool = False
    limits: str = ""
    root_only: bool = False


SHELL = "/bin/sh -c '{0} exec \"$@\"' sh"


def shell(command: str, name: str | None = None, **more: Any) -> Case:
    """An environment that a shell makes."""
    return Case(name or command, wrap=SHELL.replace("{0}", command), **more)


def limit(name: str, words: str, **more: Any) -> Case:
    """A limit of resources, for the training and the agent that it starts."""
    return Case(name, wrap=f"prlimit {words}", **more)


def mounts(name: str, command: str) -> Case:
    """An environment whose /dev/shm is another one."""
    wrap = f"unshare --mount --propagation private {SHELL.replace('{0}', command)}"
    return Case(name, wrap=wrap, root_only=True, torch=True)


def user(name: str, **more: Any) -> Case:
    """As a user who is in no list of users, as docker's --user: it may read all, so that it finds Python."""
    own = "mkdir {tmp}/data; chown -R 12345 {tmp}/data {tmp}/state {runtime};"
    caps = "--inh-caps +dac_read_search --ambient-caps +dac_read_search"
    priv = f"setpriv --reuid 12345 --regid 12345 --clear-groups {caps}"
    return Case(name, wrap=f"{SHELL.replace('{0}', own)} {priv}", root_only=True, **more)


DAEMON = """
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 3)
    os.open(os.devnull, os.O_RDWR), os.dup(0), os.dup(0)
    main()
"""
MULTIPROCESSING = """
    import multiprocessing
    context = multiprocessing.get_context({method!r})
    process = context.Process(target=main)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
THREADS = """
    import threading
    done = threading.Event()
    others = [threading.Thread(target=done.wait) for _ in range(300)]
    for thread in others: thread.start()
    main()
    done.set()
"""
NO_STDOUT = """
class Plain:
    def write(self, text): pass
    def flush(self): pass
sys.stdout = sys.stderr = Plain()
"""
HANDLERS = """
import signal
def handler(*_): pass
for name in ("TERM", "INT", "USR1", "ALRM", "CHLD", "URG", "IO"):
    signal.signal(getattr(signal, "SIG" + name), handler)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.001)
"""
HOOKS = """
import atexit
def hook(*_): os._exit(9)
sys.excepthook = hook
sys.unraisablehook = hook
import threading
threading.excepthook = hook
atexit.register(lambda: logger.info("later than the end"))
"""

CASES = [
    Case("plain"),
    *(
        shell(
            " ".join(f"exec {number}{'<' if number == 0 else '>'}&-;" for number in closed),
            f"closed {closed}",
        )
        for closed in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    ),
    limit("nofile 64", "--nofile=64"),
    limit("nofile 32", "--nofile=32", limits="it may open 32 files"),
    limit("fsize 256 KiB", "--fsize=262144"),
    limit("fsize 256 KiB, more rows", "--fsize=262144", rows=20_000, limits="its files end at 262144 bytes"),
    limit("fsize 64 KiB soft", "--fsize=65536:unlimited"),
    limit("fsize 64 KiB soft, more rows", "--fsize=65536:unlimited", rows=5000),
    limit("fsize 16 KiB", "--fsize=16384", limits="its files end at 16384 bytes"),
    limit("fsize 16 KiB, more rows", "--fsize=16384", rows=5000, limits="its files end at 16384 bytes"),
    limit("as 1 GiB", "--as=1073741824"),
    limit("as 2 GiB", "--as=2147483648"),
    limit("nproc 100", "--nproc=100"),
    limit("core and stack", "--core=0 --stack=1048576"),
    Case(
        "fsize soft, SIGXFSZ default",
        wrap="prlimit --fsize=262144:unlimited",
        before="import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)",
    ),
    Case(
        "fsize hard, SIGXFSZ default",
        wrap="prlimit --fsize=262144",
        before="import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)",
    ),
    shell("umask 077;"),
    shell("umask 000;"),
    shell("umask 0777;"),
    shell("umask 0277;"),
    Case("LC_ALL=C", env={"LC_ALL": "C", "LANG": None}),
    Case("LC_ALL=POSIX", env={"LC_ALL": "POSIX", "LANG": None}),
    Case("no locale", env={"LC_ALL": None, "LANG": None, "LC_CTYPE": None}),
    Case("ascii", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, table="tafel"),
    Case("latin-1 output", env={"PYTHONIOENCODING": "latin-1"}),
    Case("ascii output", env={"PYTHONIOENCODING": "ascii"}),
    Case("no HOME", env={"HOME": None}),
    Case("HOME is not there", env={"HOME": "/nonexistent/home"}),
    Case("HOME is a file", env={"HOME": "/dev/null"}),
    Case("HOME empty", env={"HOME": ""}),
    Case("no XDG", env={"XDG_RUNTIME_DIR": None, "XDG_STATE_HOME": None, "XDG_CONFIG_HOME": None}),
    Case("TMPDIR is not there", env={"TMPDIR": "/nonexistent/tmp"}),
    Case("PATH empty", env={"PATH": ""}),
    shell("mkdir {tmp}/gone; cd {tmp}/gone; rmdir {tmp}/gone;", "no working folder"),
    shell("cd {tmp};", "relative root", root="data", begun="os.chdir('/')"),
    shell(
        "mkdir {tmp}/gone; cd {tmp}/gone; rmdir {tmp}/gone;",
        "-W error without a working folder",
        python=("-W", "error"),
    ),
    shell("cd /proc;", "read-only working folder"),
    shell("cd {tmp};", "chdir before", root="data", begun="os.mkdir('other'); os.chdir('other')"),
    Case("-B", python=("-B",)),
    Case("-O", python=("-O",)),
    Case("-OO", python=("-OO",)),
    Case("-I", python=("-I",)),
    Case("-S as far as it goes", python=("-s",)),
    Case("-W error", python=("-W", "error"), after="import gc; gc.collect()"),
    Case("-X dev", python=("-X", "dev", "-W", "error")),
    shell("true |", "stdin is a closed pipe"),
    Case("nice", wrap="nice -n 19"),
    Case("SIGPIPE default", before="import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)"),
    Case("SIGCHLD ignored", before="import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"),
    shell('trap "" CHLD PIPE HUP INT TERM XFSZ;', "signals ignored"),
    Case("signal handlers", before=HANDLERS, after="signal.setitimer(signal.ITIMER_REAL, 0)"),
    Case("many threads", start=THREADS),
    Case("in a thread", start="import threading; t = threading.Thread(target=main); t.start(); t.join()"),
    Case("daemon", start=DAEMON),
    Case("spawn", start=MULTIPROCESSING.format(method="spawn")),
    Case("forkserver", start=MULTIPROCESSING.format(method="forkserver")),
    Case("fork", start=MULTIPROCESSING.format(method="fork")),
    Case("setsid", before="os.setsid()"),
    Case("plain stdout", before=NO_STDOUT),
    Case("stdout None", before="sys.stdout = sys.stderr = sys.stdin = None"),
    Case("stdout closed object", before="sys.stdout = open(os.devnull, 'w'); sys.stdout.close()"),
    Case("hooks", before=HOOKS),
    Case("timeout", wrap="timeout 60"),
    Case("env -i", env_only=True),
    Case("cron", env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "HOME": "/root"}, env_only=True),
    shell("exec >/dev/full;", "stdout full"),
    shell("exec 2>/dev/full >/dev/full;", "both full"),
    mounts("/dev/shm of 64 MiB", "mount -t tmpfs -o size=64m tmpfs /dev/shm;"),
    mounts("/dev/shm full", "mount -t tmpfs -o size=4k tmpfs /dev/shm;"),
    mounts("/dev/shm read-only", "mount -t tmpfs -o ro tmpfs /dev/shm;"),
    user("no passwd entry"),
    user("no passwd entry, no HOME", env={"HOME": None}),
    user("HOME not writable", env={"HOME": "/root"}),
    user("TMPDIR not writable", env={"TMPDIR": "/root"}),
    user("docker --user", env={"HOME": "/"}, torch=True),
    Case("no gc, small recursion", before="import gc; gc.disable(); sys.setrecursionlimit(120)"),
]


class Lab:
    """Runs a training in an environment, and looks at what came of it."""

    def __init__(self, tmp: Path, places: Places) -> None:
        self.tmp = tmp
        self.places = places
        self.code = tmp / "code"
        self.code.mkdir()
        self.case = CASES[0]

    def run(self, case: Case) -> subprocess.CompletedProcess[str]:
        self.case = case
        script = self.code / "train.py"
        text = TRAINING.format(
            before=case.before,
            begun=case.begun,
            after=case.after,
            start=case.start,
            rows=case.rows,
            table=case.table,
            torch=case.torch,
        )
        script.write_text(text, encoding="utf-8")
        keep = ("RLA_STATE_DIR", "RLA_RUNTIME_DIR", "RLA_TEST_MARKER")
        environment = {key: os.environ[key] for key in keep} if case.env_only else dict(os.environ)
        for key, value in case.env.items():
            environment.pop(key, None)
            if value is not None:
                environment[key] = value
        wrap = self.words(case.wrap)
        wrap[:1] = [shutil.which(word) or word for word in wrap[:1]]
        arguments = (str(script), case.root.format(tmp=self.tmp), str(self.code))
        command = [*wrap, sys.executable, *case.python, *arguments]
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=60 * TIME_FACTOR,
        )

    def words(self, text: str) -> list[str]:
        named = text.replace("{tmp}", str(self.tmp)).replace("{runtime}", str(self.places.runtime))
        return shlex.split(named)

    def rows(self) -> list[str]:
        found = []
        for path in self.tmp.glob("data/log/*/*/*/*/*/progress.csv"):
            with path.open(encoding="utf-8", newline="") as file:
                found += [row["number"] for row in csv.DictReader(file)]
        return found

    def state(self) -> dict[str, Any]:
        for path in self.tmp.glob("data/log/*/*/*/*/*/run.json"):
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
        return {}

    def stop(self) -> None:
        """Stop the agent, as the user whose it is."""
        wrap = self.words(self.case.wrap) if "setpriv" in self.case.wrap else []
        command = [*wrap, sys.executable, "-m", "rla_agent", "stop"]
        subprocess.run(command, capture_output=True, check=False, timeout=60 * TIME_FACTOR)

    def doctor(self, case: Case) -> str:
        """What doctor says, in the same environment, since the agent may not have been able to start."""
        command = [*self.words(case.wrap), sys.executable, "-m", "rla_agent", "doctor"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rla_agent", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 * TIME_FACTOR)


@pytest.fixture
def lab(places: Places, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, places)
    yield made
    made.stop()


QUICK = ("closed (0, 1, 2)", "ascii", "fork")
FURTHER = (
    "closed (0,)", "closed (1,)", "closed (2,)", "closed (0, 1)", "closed (0, 2)", "closed (1, 2)",
    "nofile 64", "fsize 256 KiB", "fsize 64 KiB soft", "fsize 16 KiB", "as 2 GiB",
    "fsize soft, SIGXFSZ default", "umask 000", "umask 0277", "LC_ALL=POSIX", "latin-1 output",
    "HOME is a file", "HOME empty", "no XDG", "-B", "-O", "-W error without a working folder", "nice",
    "SIGCHLD ignored", "many threads", "daemon", "forkserver", "stdout None", "stdout full",
    "/dev/shm of 64 MiB", "no passwd entry, no HOME", "fsize 256 KiB, more rows",
)  # fmt: skip


def marks_of(case: Case) -> tuple[pytest.MarkDecorator, ...]:
    """Of a case: some are quick; where one of two alike is enough, the other is left for later."""
    if case.name in QUICK:
        return ()
    return (pytest.mark.slow, *((pytest.mark.further,) if case.name.strip(";") in FURTHER else ()))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name.strip(";"), marks=marks_of(case)) for case in CASES],
)
def test_training_and_its_agent(case: Case, lab: Lab, wait_until: Callable[..., Any]) -> None:
    if case.root_only and os.geteuid() != 0:
        pytest.skip("only root can make this environment")
    if case.torch:
        pytest.importorskip("torch")
    done = lab.run(case)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert case.limits in done.stderr
    if case.limits:
        wait_until(lambda: case.limits in lab.doctor(case), what="doctor's word")
        lab.stop()
        lab.command("start", "--detach")
    wait_until(
        lambda: lab.state().get("state") == "finished" and len(lab.rows()) >= case.rows,
        what=lambda: f"{lab.state()} {len(lab.rows())} {done.stderr} {lab.command('doctor').stdout}",
    )
    assert lab.rows() == [str(step) for step in range(case.rows)]
    assert lab.state()["lost"] == 0, lab.state()


@pytest.mark.slow
def test_a_child_of_multiprocessing_that_fails_has_failed(lab: Lab, wait_until: Callable[..., Any]) -> None:
    """Such a child ends without what is to be done at a process's end."""
    before = "def failing():\n    main()\n    raise ValueError('no more reward')"
    start = MULTIPROCESSING.format(method="fork").replace("=main", "=failing")
    case = Case("fails", before=before, start=start)
    assert lab.run(case).returncode == 1
    wait_until(lambda: lab.state().get("state") == "failed", what=lambda: str(lab.state()))
    assert lab.state()["reason"] == "ValueError: no more reward"


@pytest.mark.parametrize(("table", "root"), [("tafel-ä", "{tmp}/data"), ("tafel", "{tmp}/wurzel-ä")])
def test_names_that_this_python_cannot_write_are_refused_in_words(table: str, root: str, lab: Lab) -> None:
    (lab.tmp / "wurzel-ä").mkdir()
    odd: dict[str, str | None] = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    done = lab.run(Case("refused", env=odd, table=table, root=root))
    last = done.stderr.strip().splitlines()[-1]
    assert "ArgumentError" in last or "UnsafeNameError" in last, done.stderr
    assert "start it with PYTHONUTF8=1" in last
    assert not list(lab.tmp.glob("*/log/*/*"))


@pytest.mark.parametrize("start", ["exp_manager", "init", "logger"])
@pytest.mark.parametrize("root", [b"wurzel-\xff", "gone"])
def test_a_root_that_no_agent_can_name_is_refused_in_words(start: str, root: str | bytes, lab: Lab) -> None:
    """Before anything is made in it: bytes that are not UTF-8, or a path from a folder that is gone."""
    calls = {
        "exp_manager": "rla_client.exp_manager.configure('t', {}, root, code_root='/')",
        "init": "rla_client.init('t', data_root=root)",
        "logger": "rla_client.logger.configure(root)",
    }
    code = (
        "import os, sys, rla_client\n"
        "from rla_client.contract.errors import ArgumentError\n"
        "root = sys.argv[1]\n"
        "if root == 'gone': os.mkdir(root); os.chdir(root); os.rmdir(os.getcwd())\n"
        f"try: {calls[start]}\n"
        "except ArgumentError as error: print(str(error).encode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, root], cwd=lab.code, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ("is not UTF-8" if isinstance(root, bytes) else "working folder, which is gone") in done.stdout
    assert not list(lab.code.iterdir())


ODD = """
import os, sys
from rla_client import exp_manager, logger
config = {"LOG_USED": ["csv", "log"], "BACKUP_CONFIG": {"backup_code_dir": ["."]}}
open(b"code/odd-\\xff.py", "w").close()
exp_manager.set_hyper_param(a="b\\udcff", n="ä")
exp_manager.add_record_param(["a", "n"])
exp_manager.configure("tab", config, "data", code_root="code")
exp_manager.log_files_gen()
logger.record_tabular("x\\udcff", 1)
logger.record_tabular("text", "\\udcff")
logger.dump_tabular()
for kind in ("log", "checkpoint", "results", "tmp_data"):
    place = os.fsencode(os.path.abspath(exp_manager.log_dir)).replace(b"/log/", f"/{kind}/".encode(), 1)
    open(place + b"/odd-\\xff.txt", "w").close()
    os.mkdir(place + b"/odd-\\xfe")
    os.symlink(b"target-\\xff", place + b"/link-\\xff")
open(place.replace(b"/tmp_data/", b"/checkpoint/", 1) + b"/checkpoint-\\xff_7.pt", "w").close()
os.makedirs(b"data/log/tab-\\xff/2026/01/01/00-00-00-000000_1.2.3.4_&a=\\xff")
os.makedirs(b"data/log/tab/2026/01/01/00-00-00-000000_1.2.3.4_&a=\\xff")
assert exp_manager.flush(60)
"""
COMMANDS = (
    "ls", "ls --json", "show", "show --json", "du", "du --json", "fsck", "fsck --json", "tail", "compare",
    "export e.csv", "export e.jsonl", "note @last ä", "tag @last ä", "archive @last --yes", "rm @last --yes",
    "trash",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [pytest.param("utf-8", marks=pytest.mark.further), "ascii"])
def test_names_that_are_not_utf8_below_a_data_root(encoding: str, agent: Any, lab: Lab) -> None:
    """Whatever lies there, each command ends without an error of encodings, and so does the run's own way."""
    assert agent.alive
    environment = {**os.environ, "PYTHONIOENCODING": encoding}

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)), cwd=lab.tmp, env=environment, capture_output=True, text=True, check=False
        )

    done = run(sys.executable, "-c", ODD)
    assert done.returncode == 0, done.stderr
    for words in COMMANDS:
        done = run(sys.executable, "-m", "rla_client.cli.app", *words.split(), "-d", "data")
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert done.returncode == 0 or words.startswith("fsck"), (words, done.stderr)
        assert "torn-params" not in done.stdout, "what was written can be read"
    for words in ("status", "doctor"):
        done = run(sys.executable, "-m", "rla_agent", words)
        assert "Traceback" not in done.stderr, (words, done.stderr)
