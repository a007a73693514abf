"""`rla_client.experiment`: the name that launchers had, in scripts and in snapshots."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from rla_client import launcher
from rla_client.launcher import FragmentWorker, MultiprocessingSampler, VecWorker, WorkerFactory
from rla_client.launcher.training_state import SetupArgs
from rla_client.launcher.workers import Worker


def test_the_same_objects_under_both_names() -> None:
    import rla_client.experiment as earlier
    from rla_client.launcher.snapshotter import Snapshotter

    module = importlib.import_module("rla_client.experiment.snapshotter")  # no file that mypy could read
    assert module.Snapshotter is Snapshotter
    assert all(getattr(earlier, name) is getattr(launcher, name) for name in launcher.__all__)


@pytest.mark.parametrize(
    ("module", "name", "today"),
    [
        ("runner", "LocalRunner", "runner"),
        ("snapshotter", "Snapshotter", "snapshotter"),
        ("samplers.workers", "DefaultWorker", "workers"),
        ("samplers.factory", "WorkerFactory", "workers"),
        ("samplers.local", "LocalSampler", "samplers"),
        ("samplers.multiprocessing", "MultiprocessingSampler", "samplers"),
        ("samplers.ray", "RaySampler", "samplers"),
        ("samplers.sampler", "Sampler", "samplers"),
        ("dowel_tabular", "TabularInput", "dowel"),
        ("environments", "EnvOfSpec", "episode_batch"),
        ("snapshot_codec", "resolve_main", "training_state"),
    ],
)
@pytest.mark.parametrize("package", ["experiment", "launcher"])
def test_snapshots_name_it(package: str, module: str, name: str, today: str) -> None:
    """A pickle of an earlier release, read by a process that never imported the name."""
    earlier = f"crla_client.{package}.{module}\n{name}\n.".encode()
    script = f"import pickle; print(pickle.loads({earlier!r}).__module__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"rla_client.launcher.{today}"
    assert pickle.loads(earlier).__qualname__ == name


def test_a_snapshot_of_samplers_that_had_modules_of_their_own() -> None:
    """`data/params.pkl`, written when the package `samplers` had six modules, loads in a new process."""
    script = (
        "import sys; from rla_client.launcher import Snapshotter; "
        "state = Snapshotter(sys.argv[1], 'none').load(trust=True); "
        "print(*(f'{one.__module__}.{one.__name__}' for one in state['classes'])); "
        "print(*(f'{type(one).__name__} {one.factory} {one._exact_calls}' for one in state['samplers'])); "
        "print(state['setup_args'])"
    )
    data = str(Path(__file__).with_name("data"))
    done = subprocess.run([sys.executable, "-c", script, data], capture_output=True, text=True, check=True)
    classes, samplers, setup = done.stdout.splitlines()
    names = ["LocalSampler", "MultiprocessingSampler", "RaySampler", "Sampler", "RemoteSampler"]
    workers = ["DefaultWorker", "FragmentWorker", "VecWorker", "Worker", "WorkerFactory"]
    assert classes.split() == [
        *(f"rla_client.launcher.samplers.{name}" for name in names),
        *(f"rla_client.launcher.workers.{name}" for name in workers),
    ]
    factory = WorkerFactory(seed=3, n_workers=2, max_episode_length=5)
    assert samplers == f"LocalSampler {factory} 0 MultiprocessingSampler {factory} 4"
    assert setup == str(SetupArgs(MultiprocessingSampler, {}, 1, 2, FragmentWorker, {"n_envs": 3}, 5))


def test_a_snapshot_that_names_modules_that_became_part_of_others() -> None:
    """`data/former_modules/params.pkl`, of a release with `dowel_tabular` and `snapshot_codec`."""
    pytest.importorskip("torch", reason="needs PyTorch")
    script = (
        "import sys; from rla_client.launcher import Snapshotter; "
        "state = Snapshotter(sys.argv[1], 'none').load(trust=True); "
        "from rla_client.launcher import EpisodeBatch, Histogram, StepType, dowel, tabular; "
        "parameter, row = state['parameter'], state['row']; "
        "assert parameter.tolist() == [[0, 1, 2], [3, 4, 5]] and type(parameter).__name__ == 'Parameter'; "
        "assert row.untyped_storage().data_ptr() == parameter.untyped_storage().data_ptr(); "
        "assert list(state['storage']) == [0] * 8 + [1] + [0] * 7; "
        "assert state['tabular'] is tabular and type(state['own']) is dowel.TabularInput; "
        "assert type(state['histogram']) is Histogram and list(state['histogram'].values) == [1, 2]; "
        "assert state['step'] is StepType.TIMEOUT"
    )
    data = str(Path(__file__).with_name("data") / "former_modules")
    subprocess.run([sys.executable, "-c", script, data], check=True)


def test_statements_of_scripts_that_name_the_modules() -> None:
    script = (
        "import rla_client.launcher.samplers.local; print(rla_client.launcher.samplers.local.LocalSampler); "
        "import rla_client.launcher.samplers.factory as factory; print(factory.physical_cores); "
        "from rla_client.launcher.samplers import multiprocessing, ray; "
        "print(multiprocessing.EXIT_WAIT_S, ray.DIED); "
        "from rla_client.launcher.samplers.sampler import MAX_ATTEMPTS, RemoteSampler, collect, serve"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("package", ["experiment", "launcher"])
@pytest.mark.parametrize(
    ("former", "today", "name"),
    [
        ("dowel_tabular", "dowel", "tabular"),
        ("environments", "episode_batch", "copy_env"),
        ("snapshot_codec", "training_state", "encode"),
    ],
)
def test_statements_that_name_a_module_that_became_part_of_another(
    package: str, former: str, today: str, name: str
) -> None:
    script = (
        f"import rla_client.{package}.{former}; from rla_client.{package}.{former} import {name}; "
        f"from rla_client.{package} import {former}; from rla_client.launcher import {today}; "
        f"assert rla_client.{package}.{former}.{name} is {former}.{name} is {name} is {today}.{name}; "
        f"assert {package!r} == 'experiment' or {former} is {today}; "
        f"assert {today}.__name__ == {today}.__spec__.name == 'rla_client.launcher.{today}'"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("former", ["dowel_tabular", "environments", "snapshot_codec"])
def test_a_former_module_while_another_thread_is_in_the_middle_of_the_package(former: str) -> None:
    script = (
        "import importlib.util as util, sys; spec = util.find_spec('rla_client.launcher'); "
        "sys.modules[spec.name] = util.module_from_spec(spec); "  # which has not run
        f"import rla_client.launcher.{former}"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_looking_for_a_module_imports_nothing() -> None:
    """That is done under the lock of all imports: two threads waited for each other for ever."""
    script = (
        "import importlib.util as util, sys; assert util.find_spec('rla_client.experiment.runner'); "
        "assert 'rla_client.launcher.runner' not in sys.modules; "
        "import rla_client.experiment.runner; assert 'rla_client.launcher.runner' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("worker", [FragmentWorker, VecWorker])
def test_workers_name_their_keywords(worker: type[Worker]) -> None:
    named = inspect.signature(worker).parameters
    assert list(named)[:5] == ["seed", "worker_number", "max_episode_length", "max_path_length", "n_envs"]
    with pytest.raises(
        TypeError, match=f"{worker.__name__}.__init__.. got an unexpected keyword argument 'n_env'"
    ):
        WorkerFactory(seed=1, worker_class=worker, worker_args={"n_env": 2})(0)


def test_a_module_that_it_never_had() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"rla_client\.experiment\.no_such_module"):
        __import__("rla_client.experiment.no_such_module")


def test_a_name_that_it_never_had() -> None:
    with pytest.raises(ImportError, match=r"cannot import name .no_such_name. from .rla_client\.experiment."):
        exec("from rla_client.experiment import no_such_name")
