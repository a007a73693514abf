from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "ctypes", "cloudpickle", "hashlib", "logging", "matplotlib", "numpy", "pandas", "platformdirs", "psutil",
    "shutil", "socket", "subprocess", "tensorboardX", "torch", "yaml", "zmq",
}  # fmt: skip


def test_importing_what_a_script_needs_loads_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"  # a test runner may load things at start
        "from rla_client import exp_manager, logger, time_step_holder\n"
        f"print(sorted((set(sys.modules) - before) & {HEAVY!r}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]", "imported too early"


CONSTANTS = (
    "LOG, TMP_DATA, DEFAULT_X_NAME, DEFAULT_TIMESTAMP, FRAMEWORK, PLATFORM_TYPE, LogDataType, LoadTesterMode"
)
TOP = f"{CONSTANTS}, plot_func, fork_log_file_fn, ExperimentLoader, ImgRecorder, experiment_data_query"


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("rla_client.compat", TOP),
        ("RLA", TOP),
        ("RLA.easy_log.tester", f"{CONSTANTS}, Tester, load_yaml"),
        ("RLA.query_tool", "LOG, default_log_types, Tester, experiment_data_query"),
    ],
)
def test_a_star_import_gives_what_the_originals_gives_and_loads_nothing_heavy(
    module: str, names: str
) -> None:
    heavy = {"matplotlib", "numpy", "pandas", "tensorboardX", "torch"}
    code = (
        "import sys; before = set(sys.modules)\n"
        "from rla_client.compat import install; install()\n"
        f"from {module} import *\n"
        f"assert all(one is not None for one in [{names}])\n"
        f"print(sorted((set(sys.modules) - before) & {heavy!r}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]", "imported too early"
