"""Without what the extras install everything else works, and what needs one says which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rla_client.contract.errors import MissingExtraError, extra

EXTRAS = ("numpy", "pandas", "tensorboardX", "google.protobuf", "matplotlib", "pyarrow", "starlette")
BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r})); "
RLA = BLOCKED + "from rla_client.cli.app import main; sys.argv[0] = 'rla'; main()"
TABLE = "time-step,loss,perf/return\n" + "".join(f"{step},{1 / (1 + step)},{step}\n" for step in range(3000))
AGENT = """
import importlib, pkgutil, rla_agent
names = [found.name for found in pkgutil.walk_packages(rla_agent.__path__, "rla_agent.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=180
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A database with one run, whose table is larger than what the csv module reads by preference."""
    folder = tmp_path / "data" / "log" / "t" / "2026" / "11" / "21" / "09-30-01-123456_10.0.0.5_&seed=1"
    folder.mkdir(parents=True)
    (folder / "progress.csv").write_text(TABLE)
    (folder / "parameter.yaml").write_text("seed: 1\nlr: 0.1\n")
    return tmp_path / "data"


def test_all_of_the_agent_is_imported() -> None:
    done = python(BLOCKED + AGENT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("ls",), "perf/return"),
        (("ls", "--group", "seed"), "2999"),
        (("show",), "2999"),
        (("metrics",), "perf/return  3000"),
    ],
)
def test_commands_work(root: Path, words: tuple[str, ...], shown: str) -> None:
    done = python(RLA, *words, "--data-root", str(root))
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.slow
def test_metrics_are_those_that_pandas_reads(root: Path) -> None:
    words = ("metrics", "--json", "--data-root", str(root))
    with_pandas = python(RLA.removeprefix(BLOCKED).join(("import sys; ", "")), *words)
    assert with_pandas.returncode == 0, with_pandas.stderr
    assert python(RLA, *words).stdout == with_pandas.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("export", "x.csv"), "read"),
        (("export", "x.parquet"), "parquet"),  # which brings pandas, too
        (("plot",), "plot"),
        (("web",), "web"),
    ],
)
def test_a_command_says_what_to_install(root: Path, words: tuple[str, ...], extra: str) -> None:
    done = python(RLA, *words, "--data-root", str(root))
    assert done.returncode == 1
    assert f"pip install 'rla-agent[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from rla_client import SummaryWriter", "tensorboard"),
        ("import rla_client.integrations.wandb", "tensorboard"),
        ("from rla_client import logger; logger.read_csv('x')", "read"),
        (
            "from rla_client.database.imports.tensorboard import read_points; next(read_points('x'))",
            "tensorboard",
        ),
        (
            "sys.modules['torch'] = None; from rla_client.checkpoint.pickling import capture; capture(1)",
            "torch",
        ),
        ("import rla_client.integrations.sb3", "sb3"),
        ("sys.modules['optuna.study'] = None; import rla_client.integrations.optuna", "optuna"),
        ("sys.modules['ray'] = None; import rla_client.integrations.tune", "ray"),
        ("from rla_client import plot_func; plot_func('x', 't', ['a'], False, ['m'])", "plot"),
    ],
)
def test_a_call_says_what_to_install(code: str, extra: str) -> None:
    done = python(BLOCKED + code)
    assert f"pip install 'rla-agent[{extra}]'" in done.stderr
    assert "MissingExtraError" in done.stderr


def test_libraries_are_called_what_they_are_known_by() -> None:
    with pytest.raises(MissingExtraError, match="x needs protobuf: pip install"), extra("tensorboard", "x"):
        raise ModuleNotFoundError(name="google")
    with pytest.raises(MissingExtraError, match="x needs uvicorn: pip install"), extra("web", "x"):
        raise ModuleNotFoundError(name="h11")


def test_a_saver_tells_at_once_that_it_cannot_save() -> None:
    """Not at the first checkpoint, an hour later."""
    done = python(
        "import sys; sys.modules['torch'] = None; from rla_client import exp_manager as e; e.new_saver()"
    )
    assert (done.returncode, "rla-agent[torch]" in done.stderr) == (1, True)


def test_a_saver_says_nothing_where_it_can() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    done = python("from rla_client import exp_manager as e; e.new_saver()")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
