from __future__ import annotations

import subprocess
import sys

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
