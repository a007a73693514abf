# ruff: noqa: B008
# (signatures and defaults of experiments are what is tested)
from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.contract.agent.places import Places

sys.path.insert(0, str(Path(__file__).parent))
from typing import NoReturn

import launchers

from rla_client import logger as rla_logger
from rla_client import time_step_holder, wrap_experiment
from rla_client.contract.errors import AgentNotRunningError, ArgumentError
from rla_client.launcher import logger, outputs, set_seed, tabular
from rla_client.launcher.experiment_folder import experiment_name
from rla_client.launcher.pending_streams import await_end

torch = pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture(autouse=True)
def own_folder(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLA_AGENT_AUTOSTART", "0")
    places.stopped_marker.touch()  # no agent but the test's own


def test_signature_and_arguments() -> None:
    @wrap_experiment
    def experiment(ctxt: Any, seed: int = 1, *, lr: Any = 0.1) -> float:
        """What it does."""
        return float(seed * lr)

    parameters = inspect.signature(experiment).parameters
    assert list(parameters) == ["seed", "lr"]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters.values())
    assert experiment.__doc__ == "What it does."
    assert experiment(seed=2) == 0.2
    with pytest.raises(TypeError):
        experiment(other=1)
    with pytest.raises(ArgumentError, match="keywords"):
        experiment(2)
    with pytest.raises(ArgumentError, match="unknown option"):
        experiment({"log_folder": "x"})
    with pytest.raises(ArgumentError, match="ctxt"):
        wrap_experiment(lambda seed: seed)
    for wrong in ({"name_parameters": "some"}, {"snapshot_mode": "last", "snapshot_gap": 3}, {"folder": "x"}):
        with pytest.raises(ValueError, match=r"\w"):
            wrap_experiment(**wrong)


def test_names_have_no_addresses() -> None:
    shown = {"act": json.dumps, "nested": [json.dumps], "thing": object(), "seed": 3, "t": torch.tensor(0.5)}
    assert experiment_name("run", shown) == (
        "run_act=json.dumps_nested=[<function dumps>]_thing=<object object>_seed=3_t=0.5"
    )


@pytest.mark.slow
def test_folders_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "REUSE_WAIT_S", 0.1)  # there is no agent that could write rows out
    seen = []

    @wrap_experiment(name_parameters="passed", archive_launch_repo=False)
    def named(ctxt: Any, seed: Any = 1, lr: Any = 0.1) -> None:
        seen.append(ctxt.snapshot_dir)

    named(lr=1, seed=3)
    named(lr=1, seed=3)
    named()
    named({"name_parameters": "all", "prefix": "a/b", "name": "other"}, seed=2)
    named({"name_parameters": True}, seed="x/y")
    named({"log_dir": "elsewhere"})
    named({"log_dir": "elsewhere"})
    named({"log_dir": "elsewhere", "use_existing_dir": True})
    named(seed="long" * 200)
    base = tmp_path / "data" / "local"
    assert [os.path.relpath(path, tmp_path) for path in seen[:8]] == [
        "data/local/experiment/named_seed=3_lr=1",
        "data/local/experiment/named_seed=3_lr=1_1",
        "data/local/experiment/named",
        "data/local/a/b/other_seed=2_lr=0.1",
        "data/local/experiment/named_seed=x_y_lr=0.1",
        "elsewhere",
        "elsewhere_1",
        "elsewhere",
    ]
    assert Path(seen[8]).parent == base / "experiment"
    assert json.loads((Path(seen[8]) / "variant.json").read_text())["seed"] == "long" * 200


def test_records_of_the_launch(tmp_path: Path) -> None:
    @wrap_experiment
    def experiment(
        ctxt: Any, seed: Any = np.int64(3), rate: Any = np.float32(0.5), what: Any = object(), **more: Any
    ) -> Any:
        return ctxt

    context = experiment(extra=[1, 2])
    folder = Path(context.snapshot_dir)
    variant = json.loads((folder / "variant.json").read_text())
    assert variant["seed"] == 3
    assert variant["rate"] == 0.5
    assert variant["extra"] == [1, 2]
    assert variant["what"] == {"$typename": "builtins.object"}
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["environment"]["packages"]["numpy"] == np.__version__
    assert metadata["launch"]["function"].endswith("experiment")
    assert (context.snapshot_mode, context.snapshot_gap) == ("last", 1)


@pytest.mark.slow
def test_what_is_logged_goes_to_the_innermost_experiment(agent: object, tmp_path: Path) -> None:
    @wrap_experiment(archive_launch_repo=False)
    def inner(ctxt: Any, value: Any = 1) -> Any:
        tabular.record("inner", value)
        logger.log("inner text")
        logger.log(tabular)
        logger.dump_all(value)
        return Path(ctxt.log_dir)

    @wrap_experiment(archive_launch_repo=False)
    def outer(ctxt: Any) -> Any:
        tabular.record("TotalEnvSteps", 50)
        tabular.record("outer", 1)
        time_step_holder.set_time(7)
        folders = [inner(value=3), inner(value=4)]
        assert time_step_holder.get_time() == 7
        logger.log(tabular)
        logger.dump_all(1)
        assert rla_logger.flush(60)
        return [Path(ctxt.log_dir), *folders]

    before, clock = rla_logger.get_current(), 5
    time_step_holder.clear()
    time_step_holder.follow(clock)
    first, second, third = outer()
    for folder in (second, third):  # the flush was of the outer one
        await_end(folder)
    assert rla_logger.get_current() is before
    assert time_step_holder.get_time() == clock
    time_step_holder.follow(clock + 1)
    assert time_step_holder.get_time() == clock + 1, "the script has not set it"
    assert launchers.rows(first) == [{"TotalEnvSteps": "50", "outer": "1", "time-step": "50"}]
    assert launchers.rows(second) == [{"inner": "3", "time-step": "3"}]
    assert launchers.rows(third) == [{"inner": "4", "time-step": "4"}]
    assert "inner text" in (second / "debug.log").read_text()
    assert "inner text" not in (first / "debug.log").read_text()
    assert list(first.rglob("events.out.tfevents.*"))


@pytest.mark.slow
def test_what_a_seed_cannot_do_is_noted_in_the_text(
    agent: object, capsys: pytest.CaptureFixture[str]
) -> None:
    @wrap_experiment(archive_launch_repo=False)
    def seeded(ctxt: Any) -> Any:
        set_seed(9)
        assert rla_logger.flush(60)
        return Path(ctxt.log_dir)

    deterministic = torch.are_deterministic_algorithms_enabled()
    text = (seeded() / "debug.log").read_text()
    torch.use_deterministic_algorithms(mode=deterministic)
    assert "seed 9; it cannot make repeatable:" in text
    assert "draw in any order" in text
    assert "cannot make repeatable" not in capsys.readouterr().out


class Client:
    def __init__(self, api_key: str) -> None:
        self.login = {"user": "me", "password": api_key + "-2"}
        self.api_key = api_key
        self.size = 3


@pytest.mark.slow
def test_secrets_in_the_attributes_of_an_object_are_hidden(agent: object) -> None:
    key = "k-12345678-abc"

    @wrap_experiment(archive_launch_repo=False, name_parameters="passed")
    def experiment(ctxt: Any, client: Client, more: Any) -> Path:
        logger.log(f"called with {client.api_key} and {more}")
        assert rla_logger.flush(60)
        return Path(ctxt.log_dir)

    folder = experiment(client=Client(key), more=[{"deep": Client(key + "-3")}])
    variant = json.loads((folder / "variant.json").read_text())
    for client in (variant["client"], variant["more"][0]["deep"]):
        assert client["api_key"] == client["login"]["password"] == "<hidden>"
        assert (client["size"], client["login"]["user"]) == (3, "me")
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert key.encode() not in written + str(folder).encode()


def test_an_exception_ends_the_run_as_failed_and_leaves_nothing_open(
    agent: object, wait_until: Callable[..., Any]
) -> None:
    folders = []

    @wrap_experiment(archive_launch_repo=False)
    def failing(ctxt: Any) -> NoReturn:
        folders.append(Path(ctxt.log_dir))
        tabular.record("a", 1)
        logger.log(tabular)
        logger.dump_all(1)
        raise ValueError("no such luck")

    before = rla_logger.get_current()
    with pytest.raises(ValueError, match="no such luck"):
        failing()
    assert rla_logger.get_current() is before
    logger.log("said afterwards")
    tabular.record("late", 1)
    tabular.clear()

    def state() -> Any:
        try:
            return json.loads((folders[0] / "run.json").read_text())
        except FileNotFoundError:
            return {}

    wait_until(lambda: state().get("state") == "failed", what="state failed")
    assert "no such luck" in json.dumps(state())
    assert "said afterwards" not in (folders[0] / "debug.log").read_text()
    assert launchers.rows(folders[0]) == [{"a": "1", "time-step": "1"}]


@pytest.mark.slow
def test_an_existing_folder_goes_on_with_its_csv(agent: object, wait_until: Callable[..., Any]) -> None:
    @wrap_experiment(archive_launch_repo=False, log_dir="run", use_existing_dir=True)
    def part(ctxt: Any, value: Any) -> Any:
        tabular.record("value", value)
        if value == 2:
            tabular.record("more", 'a,\n"b"')
        logger.log(tabular)
        logger.dump_all(value)
        assert rla_logger.flush(60)
        return Path(ctxt.log_dir)

    for value in (1, 2, 3):
        folder = part(value=value)
    assert [row["value"] for row in launchers.rows(folder)] == ["1", "2", "3"]
    assert launchers.rows(folder)[1]["more"] == 'a,\n"b"'
    assert len(list(folder.rglob("events.out.tfevents.*"))) == 1


@pytest.mark.slow
def test_several_processes_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "many.py"
    path.write_text(
        "import sys\nfrom rla_client.launcher import wrap_experiment\n"
        "@wrap_experiment(archive_launch_repo=False)\n"
        "def race(ctxt):\n    sys.stdout.write(f'{ctxt.snapshot_dir}\\n')\n"  # in one piece beside warnings
        "for _ in range(5):\n    race()\n"
    )
    started = [launchers.start(path) for _ in range(4)]
    folders = [
        line
        for process in started
        for line in process.communicate(timeout=launchers.DEADLINE_S)[0].splitlines()
        if line.startswith(os.sep)
    ]
    assert len(folders) == 20
    names = {os.path.basename(folder) for folder in folders}
    assert names == {"race", *(f"race_{number}" for number in range(1, 20))}


@pytest.mark.slow
def test_metadata_and_archive_of_a_repository(tmp_path: Path) -> None:
    repository = tmp_path / "project"
    path = launchers.write(repository / "scripts", calls="search(epochs=1)")
    (repository / ".gitignore").write_text("ignored/\n")
    for name, content in {
        "a.py": b"a = 1\n",
        "ignored/x": b"x",
        "big.bin": bytes(8 << 20),
        "b c\n.txt": b"b",
    }.items():
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_bytes(content)
    (repository / "link").symlink_to("a.py")

    def git(*arguments: Any) -> Any:
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=repository, check=True, capture_output=True, text=True
        )

    git("init", "-q")
    git("add", "a.py", "scripts")
    git("commit", "-q", "-m", "first")
    launchers.run(path)
    git("add", ".gitignore", "link", "b c\n.txt", "big.bin")
    git("commit", "-q", "-m", "second")
    commit = git("rev-parse", "HEAD").stdout.strip()
    launchers.run(path)
    first, second = (
        repository / "scripts" / "data" / "local" / "experiment" / name for name in ("search", "search_1")
    )
    one, two = (json.loads((folder / "metadata.json").read_text()) for folder in (first, second))
    assert one["githash"].endswith("-dirty")
    assert two["githash"] == commit
    assert two["launcher"] == "scripts/launcher.py"
    with tarfile.open(second / "launch_archive.tar.xz") as tar:
        names = set(tar.getnames())
    assert names == {".gitignore", "a.py", "b c\n.txt", "link", "scripts/launcher.py"}
    manifest = json.loads((second / "launch_manifest.json").read_text())
    assert "big.bin" in manifest["left_out"]
    assert not (second / "launch_archive.tar").exists()


@pytest.mark.parametrize("variable", [{"RLA_MODE": "disabled"}, {"RANK": "1"}])
@pytest.mark.parametrize("options", ["snapshot_mode='all'", "task_table_name='t'"])
def test_a_process_that_stores_nothing_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: dict[str, str], options: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    shown = "; print(sorted(p.name for p in pathlib.Path(pathlib.Path('where').read_text()).glob('*.pkl')))"
    path = launchers.write(tmp_path / "project", options, "import pathlib; search(epochs=3)" + shown)
    text = path.read_text().replace("set_seed(seed)", "open('where', 'w').write(ctxt.snapshot_dir)")
    path.write_text(text)
    assert "['params.pkl']" in launchers.run(path)  # the newest is there, for who loads it
    left = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()}
    left -= {one for one in left if one.startswith("state/") or "__pycache__" in one}
    assert left == {"project/launcher.py", "project/where"}
    assert list(temporary.iterdir()) == []


def test_ctrl_c_while_outputs_close_leaves_no_run_behind(tmp_path: Path) -> None:
    before = rla_logger.get_current()

    def interrupted(_state: str, _reason: str) -> NoReturn:
        raise KeyboardInterrupt

    opened = outputs.Outputs(tmp_path, "x", fresh=True, on_close=interrupted)
    assert rla_logger.get_current() is not before
    with pytest.raises(KeyboardInterrupt):
        opened.close("finished", "")
    assert rla_logger.get_current() is before
    assert outputs.current_outputs() is None
    outputs.Outputs(tmp_path, "x", fresh=True).close("finished", "")  # nobody holds the folder


def test_what_waits_in_the_spool_is_found_where_the_database_holds_links(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "log").symlink_to(tmp_path / "disk")

    @wrap_experiment(archive_launch_repo=False, data_root=tmp_path / "db")
    def experiment(ctxt: Any) -> Any:
        return ctxt

    context = experiment()
    with pytest.raises(AgentNotRunningError, match="still wait"):
        await_end(context.log_dir, 0.1)


@pytest.mark.parametrize("variable", [("RLA_MODE", "disabled"), ("RANK", "1")])
def test_going_back_to_a_snapshot_stores_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv(*variable)
    data_root = tmp_path / "data"

    @wrap_experiment(task_table_name="t", data_root=str(data_root))
    def experiment(ctxt: Any) -> None:
        for row in range(3):
            rla_logger.record_tabular("row", row)
            rla_logger.dump_tabular()
        current = outputs.current_outputs()
        assert current is not None
        current.rewind(1)  # as LocalRunner.restore does
        rla_logger.record_tabular("row", 9)
        rla_logger.dump_tabular()

    experiment()
    assert not data_root.exists()
    assert not any(path.suffix == ".seg" for path in tmp_path.rglob("*"))


def test_an_experiment_is_annotated_with_what_only_type_checkers_import() -> None:
    names: dict[str, Any] = {"wrap_experiment": wrap_experiment}
    lazily = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    text = lazily + "@wrap_experiment\ndef run(ctxt: Context, lr: Rate = 0.1) -> Missing: ...\n"
    exec(compile(text, "run.py", "exec", 0, True), names)
    assert list(names["run"].__signature__.parameters) == ["lr"]
