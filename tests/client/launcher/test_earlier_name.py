"""`rla_client.experiment`: the name that launchers had, in scripts and in snapshots."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest

from rla_client import launcher


def test_the_same_objects_under_both_names() -> None:
    from rla_client.launcher.snapshotter import Snapshotter

    earlier = importlib.import_module("rla_client.experiment")
    module = importlib.import_module("rla_client.experiment.snapshotter")  # no file that mypy could read
    assert module.Snapshotter is Snapshotter
    assert all(getattr(earlier, name) is getattr(launcher, name) for name in launcher.__all__)


@pytest.mark.parametrize(
    ("module", "name"),
    [("runner", "LocalRunner"), ("snapshotter", "Snapshotter"), ("samplers.workers", "DefaultWorker")],
)
def test_snapshots_name_it(module: str, name: str) -> None:
    """A pickle of an earlier release, read by a process that never imported the name."""
    earlier = f"crla_client.experiment.{module}\n{name}\n.".encode()
    script = f"import pickle; print(pickle.loads({earlier!r}).__module__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"rla_client.launcher.{module}"
    assert pickle.loads(earlier).__qualname__ == name


def test_a_module_that_it_never_had() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        __import__("rla_client.experiment.no_such_module")
