"""Modules that are there, and those that are half there."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.waiting import wait_until

from rla_client.contract.process.loaded_modules import loaded

HALF = """
import threading

begun, goes_on = threading.Event(), threading.Event()
begun.set()
goes_on.wait(30)
Late = int
"""


def test_a_module_counts_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_loaded.py").write_text(HALF)
    monkeypatch.syspath_prepend(tmp_path)
    assert loaded("half_loaded") is None
    thread = threading.Thread(target=__import__, args=("half_loaded",))
    thread.start()
    wait_until(lambda: hasattr(sys.modules.get("half_loaded"), "goes_on"), what="the import")
    assert loaded("half_loaded") is None
    sys.modules["half_loaded"].goes_on.set()
    thread.join(30)
    assert loaded("half_loaded").Late is int
    del sys.modules["half_loaded"]


@pytest.mark.parametrize(
    "name", ["torch", "PIL.Image", "matplotlib.figure", "omegaconf", "plotly.basedatatypes"]
)
def test_calls_do_not_fail_while_another_thread_imports_a_library(tmp_path: Path, name: str) -> None:
    path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(HALF)
    (path.parent / "__init__.py").touch()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"""
import sys, threading
thread = threading.Thread(target=__import__, args=({name!r},))
thread.start()
while not hasattr(sys.modules.get({name!r}), "goes_on"):
    pass
try:
    from rla_client.media.row_media import is_media
    from rla_client.run.state.custom_data import array_kind
    from rla_client.run.state.random_state import capture_random_state
    from rla_client.init_run import to_parameters
    from rla_client.stream.param_values import plain_hyper_param
    assert not is_media(object())
    assert array_kind(object()) is None
    assert "torch" not in capture_random_state()
    assert to_parameters({{"a": 1}}) == {{"a": 1}}
    plain_hyper_param({{"a": object()}})
finally:
    sys.modules[{name!r}].goes_on.set()
""",
        ],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[4]}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.returncode, done.stderr
