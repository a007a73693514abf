"""No secret that a run was given stands in any file or folder name that is written about it."""

from __future__ import annotations

import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rla_client.contract.errors import LaunchError
from rla_client.launcher import relaunch
from rla_client.launcher.pending_streams import await_end

pytest.importorskip("torch", reason="needs PyTorch")

KEY, NESTED, LOGIN = "wandb-Key/8f3a9c51d7", "hf_nested-77aa21f0", "p@ss-word-41c2"  # what a run is given
MOVED = "moved-5e5e5e5e"
VARIABLE, STAGED, CHANGED, REMOTE = (
    "env-5519ab77cc",
    "staged-c0ffee11",
    "changed-00d1e5e1",
    "remote-71f0aa9e23",
)
SECRETS = (KEY, NESTED, LOGIN, VARIABLE, STAGED, CHANGED, REMOTE)

SCRIPT = r"""
import argparse, os, sys
from rla_client import exp_manager, logger

parser = argparse.ArgumentParser()
for name in ("--wandb-api-key", "--data-root", "--database", "--end"):
    parser.add_argument(name, default="")
args, _ = parser.parse_known_args()
exp_manager.configure("t", "rla_config.yaml", args.data_root)
exp_manager.set_hyper_param(
    lr=0.1, **vars(args), login={"user": "me", "password": {LOGIN!r}}, max_tokens=7,
    password=int("4821" "3377"),
services=[{"api": {"token": {NESTED!r}}, "key": "sort"}],
    note="uses {NESTED} twice",
)
exp_manager.add_record_param(["lr", "wandb_api_key", "login.password", "services"])
exp_manager.log_files_gen()
exp_manager.print_args()
logger.info("started with", vars(args))
logger.get_tbx_writer().add_hparams({"lr": 0.1, "api_key": args.wandb_api_key}, {"x": 1.0})
logger.record_tabular("x", 1)
logger.dump_tabular()
exp_manager.save_checkpoint({"w": [1.0]})
print("TRUE", exp_manager.hyper_param["wandb_api_key"], exp_manager.hyper_param["login"]["password"])
if args.end == "fail":
    raise ValueError("the server refused " + args.wandb_api_key)
exp_manager.flush(30)
"""

LAUNCHER = """
import os, sys
from rla_client.launcher import DefaultWorker, LocalRunner, wrap_experiment
import gymnasium, numpy as np

class Policy:
    def get_action(self, observation):
        return 0, {}

class Algo:
    policy = Policy()
    def train(self, runner):
        for _ in runner.step_epochs():
            runner.obtain_samples(0)

class Worker(DefaultWorker):
    def __init__(self, *args, api_key=None, **more):
        print("WORKER", api_key)
        super().__init__(*args, **more)

@wrap_experiment(name_parameters="passed")
def train(ctxt, seed=1, api_key="", login=None, epochs=2):
    runner = LocalRunner(ctxt)
    runner.setup(Algo(), gymnasium.make("CartPole-v1"), worker_class=Worker, worker_args={"api_key": api_key})
    runner.train(n_epochs=epochs, batch_size=20)
    print("TRUE", api_key, login["password"])

key = [word.partition("=")[2] for word in sys.argv if word.startswith("--wandb-api-key=")][0]
train(api_key=key, login={"user": "me", "password": os.environ["SMTP_PASSWORD"]})
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a token in its remote, and uncommitted secrets in files that git tracks."""
    folder = tmp_path / "project"
    folder.mkdir()
    script = SCRIPT.replace("{LOGIN!r}", 'os.environ["SMTP_PASSWORD"]').replace(
        "{NESTED!r}", 'os.environ["HF_TOKEN"]'
    )
    script = script.replace('"uses {NESTED} twice"', '"uses %s twice" % os.environ["HF_TOKEN"]')
    (folder / "train.py").write_text(script)
    (folder / "launcher.py").write_text(LAUNCHER)
    (folder / ".envrc").write_text("export A=1\n")
    (folder / ".pgpass").write_text("*:*:*:me:nothing\n" * 9)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (
        ("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "x"), ("mv", ".pgpass", "logins.txt"),
        ("remote", "add", "origin", f"https://{REMOTE}@example.org/x.git"),
    ):  # fmt: skip
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / ".envrc").write_text(f"export A={CHANGED}\n")
    (folder / "logins.txt").write_text("*:*:*:me:nothing\n" * 9 + f"*:*:*:me:{MOVED}\n")
    (folder / ".git-credentials").write_text(f"https://me:{STAGED}@example.org\n")
    (folder / "Deploy.PPK").write_text(STAGED)
    (folder / "linked.txt").symlink_to(".git-credentials")
    subprocess.run(["git", "add", ".git-credentials"], cwd=folder, check=True)
    return folder


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMTP_PASSWORD", LOGIN)
    monkeypatch.setenv("HF_TOKEN", NESTED)
    monkeypatch.setenv("RLA_PROXY_TOKEN", VARIABLE)
    monkeypatch.setenv("RLA_PROXY", f"http://{VARIABLE}@proxy:80/")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to=/tmp/{VARIABLE}")


def program(project: Path, *words: str, options: str = "", ends: int = 0) -> str:
    """Run a program of the project to its end; what it printed."""
    (project / "rla_config.yaml").write_text(f"AGENT:\n  autostart: false\n{options}")
    done = subprocess.run(
        [sys.executable, *words], cwd=project, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == ends, done.stderr
    return done.stdout


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and of what is packed in it."""
    data = path.read_bytes()
    yield data
    if path.suffix == ".xz":
        data = lzma.decompress(data)
        yield data
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            yield from (packed.read(name) for name in packed.namelist())
    elif path.suffixes[-2:-1] == [".tar"] or path.suffix == ".tar":
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            yield from (tar.extractfile(entry).read() for entry in tar if entry.isfile())  # type: ignore[union-attr]


def spellings(secret: str) -> set[bytes]:
    return {text.encode() for text in (secret, secret.replace("/", "_"), json.dumps(secret)[1:-1])}


def hits(secrets: tuple[str, ...], *folders: Path) -> list[str]:
    """Where any of the secrets stands: in the name or the content of what lies below the folders."""
    found = []
    for folder in folders:
        for base, names, files in os.walk(folder):
            for name in (*names, *files):
                path = Path(base, name)
                texts = [os.fsencode(name)]
                if name in files and path.is_file():
                    with suppress(FileNotFoundError):  # of a stream that was taken in meanwhile
                        texts += contents(path)
                found += [
                    f"{secret} in {path.relative_to(folder)}"
                    for secret in secrets
                    if any(spelled in text for spelled in spellings(secret) for text in texts)
                ]
    return found


COMMAND = (
    "train.py",
    "--wandb-api-key",
    KEY,
    f"--database=postgres://me:{LOGIN}@host/db",
    "--data-root",
    "data",
)


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("end", ["finish", pytest.param("fail", marks=pytest.mark.further)])
def test_a_run_sees_its_secrets_and_no_file_does(
    project: Path, places: Any, wait_until: Callable[..., Any], end: str
) -> None:
    output = program(project, *COMMAND, "--end", end, ends=int(end == "fail"))

    assert f"TRUE {KEY} {LOGIN}" in output
    (log,) = (project / "data" / "log" / "t").glob("*/*/*/*")
    await_end(log)
    wait_until(lambda: json.loads((log / "run.json").read_text())["state"] != "running")
    wait_until((Path(str(log).replace("/log/", "/code/")) / "train.py").exists)
    wait_until(lambda: "left_out" in json.loads((log / "environment.json").read_text())["git"]["diff"])
    assert hits((*SECRETS, "48213377"), project / "data", places.state) == []
    parameters = yaml.safe_load((log / "parameter.yaml").read_text())
    assert parameters["wandb_api_key"] == parameters["password"] == "<hidden>"
    assert (parameters["lr"], parameters["max_tokens"], parameters["login"]["user"]) == (0.1, 7, "me")
    assert parameters["services"] == [{"api": {"token": "<hidden>"}, "key": "sort"}]
    assert "&lr=0.1&wandb_api_key=<hidden>&login.password=<hidden>" in log.name
    diff = json.loads((log / "environment.json").read_text())["git"]["diff"]
    assert MOVED not in diff["text"]
    assert set(diff["left_out"]) == {".envrc", ".git-credentials", ".pgpass", "logins.txt"}


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_switched_off_they_stand_as_they_are(project: Path) -> None:
    program(project, *COMMAND, options="  hide_secrets: false\n")

    (log,) = (project / "data" / "log" / "t").glob("*/*/*/*")
    await_end(log)
    assert yaml.safe_load((log / "parameter.yaml").read_text())["wandb_api_key"] == KEY
    assert KEY.replace("/", "_") in log.name
    found = " ".join(hits((KEY,), project / "data"))
    for name in ("parameter.yaml", "backup.txt", "tfevents", ".json", "log.txt"):
        assert name in found


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    "item", [True, pytest.param(False, marks=pytest.mark.further)], ids=["item", "folder"]
)
def test_a_launcher_and_its_resume(
    project: Path, places: Any, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, item: bool
) -> None:
    if not item:
        text = (project / "launcher.py").read_text()
        (project / "launcher.py").write_text(text.replace("experiment(", "experiment(log_dir='plain', "))
    output = program(project, "launcher.py", f"--wandb-api-key={KEY}")

    assert f"TRUE {KEY} {LOGIN}" in output
    assert f"WORKER {KEY}" in output
    log = project / "plain" if not item else next((project / "data" / "log").glob("*/*/*/*/*/*"))
    await_end(log)
    data = project / ("data" if item else "plain")
    wait_until(lambda: list(data.rglob("params.pkl")) and list(data.rglob("launch_archive.tar.xz")))
    assert hits(SECRETS, data, places.state) == []
    variant = json.loads((log / "variant.json").read_text())
    assert variant["api_key"] == variant["login"]["password"] == "<hidden>"
    assert json.loads((log / "metadata.json").read_text())["launch"]["arguments"] == [
        "--wandb-api-key=<hidden>"
    ]

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(LaunchError, match="set WANDB_API_KEY to the value of --wandb-api-key"):
        relaunch.resume(log)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert relaunch.resume(log) == 0
    await_end(log)
    assert relaunch.rerun(log, project / "again").rows[0] == 2
    assert hits(SECRETS, data, project / "again" / "run", places.state) == []
