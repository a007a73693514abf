"""Python programs in forked copies of a process that has the slow imports behind it.

A start of Python with PyTorch takes seconds of a core, and the tests start some thousand programs. Arguments,
folder, environment, standard streams, traceback, exit status and what runs at exit are those of a fresh
interpreter. What only a fresh one can show (its own options, what is imported when) is tested with one.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_REQUEST_BYTES = 128 << 10
# libraries that take longer than all of ours; a script that imports the first one gets a copy with it
SLOW = {
    "stable_baselines3": ("stable_baselines3", "gymnasium"),
    "torch": ("torch", "numpy"),
    "rla_client.integrations.sb3": ("stable_baselines3", "gymnasium"),
}
OF_THE_START = re.compile(r"PYTHON(?!PATH$|DONTWRITEBYTECODE$)|LC_|LANG|LD_|MALLOC_")  # read once, by Python
_kept: dict[tuple[str, ...], Warm] = {}


class Warm:
    """A process with some modules imported, of which copies run programs, one at a time."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._channel, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RLA_")}
        environment |= {"PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg"}
        with far:
            command = [sys.executable, __file__, str(far.fileno()), *modules]
            self._process = subprocess.Popen(
                command, env=environment, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL, cwd="/"
            )

    def run(
        self, words: Sequence[str], cwd: Path | None, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` with `capture_output`; `words`: a script's path, then its arguments."""
        request = json.dumps([list(words), str(cwd or Path.cwd()), dict(environment)]).encode()
        assert len(request) < MAX_REQUEST_BYTES
        ends = [os.pipe(), os.pipe()]
        try:
            socket.send_fds(self._channel, [request], [far for _, far in ends])
        finally:
            for _, far in ends:
                os.close(far)
        child = int(self._answer())
        read: list[bytearray] = [bytearray(), bytearray()]
        late, deadline = False, time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for (near, _), data in zip(ends, read, strict=True):
                selector.register(near, selectors.EVENT_READ, data)
            while selector.get_map() and not late:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                late = not ready
                for key, _ in ready:
                    part = os.read(key.fd, 1 << 16)
                    key.data.extend(part)
                    if not part:
                        selector.unregister(key.fd)
            for near, _ in ends:
                os.close(near)
        if late:
            os.kill(child, signal.SIGKILL)  # or it is a zombie: nobody has asked for its end
        code = os.waitstatus_to_exitcode(int(self._answer()))
        if late:
            raise subprocess.TimeoutExpired(list(words), timeout_s, bytes(read[0]), bytes(read[1]))
        out, err = (bytes(data).decode() for data in read)
        return subprocess.CompletedProcess(list(words), code, out, err)

    def _answer(self) -> bytes:
        found = self._channel.recv(64)
        if not found:
            raise RuntimeError(f"the warm process has ended with {self._process.wait()}")
        return found


def run_python(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 500.0,
    modules: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS`, in a copy of a process with these modules where the environment allows it."""
    wanted = dict(os.environ if environment is None else environment)
    here = {name: value for name, value in os.environ.items() if OF_THE_START.match(name)}
    if not modules or here != {name: value for name, value in wanted.items() if OF_THE_START.match(name)}:
        return subprocess.run(
            [sys.executable, *words], cwd=cwd, env=wanted, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=timeout_s,
        )  # fmt: skip
    key = tuple(modules)
    if key not in _kept:
        _kept[key] = Warm(key)
    return _kept[key].run(words, cwd, wanted, timeout_s)


def slow_modules(source: str) -> Sequence[str]:
    """What of the slow libraries a script imports."""
    imported = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", source, re.MULTILINE))
    for name, modules in SLOW.items():
        if any(one == name or one.startswith(f"{name}.") for one in imported):
            return modules
    return ()


def _serve(channel: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Fork a child for each request; returns in the child, with the request."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, MAX_REQUEST_BYTES, 2)
        if not data:
            os._exit(0)
        child = os.fork()
        if child == 0:
            channel.close()
            for target, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, target)
                os.close(descriptor)
            found: tuple[list[str], str, dict[str, str]] = tuple(json.loads(data))
            return found
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(child).encode())
        channel.send(str(os.waitpid(child, 0)[1]).encode())


def _become(words: list[str], cwd: str, environment: dict[str, str]) -> None:
    """Have what a fresh interpreter has, and run its program."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = os.fdopen(  # type: ignore[misc]
        2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    own = [path for path in sys.path if path not in {str(Path(__file__).parent), str(REPOSITORY)}]
    sys.path[:] = [os.path.dirname(os.path.abspath(words[0])), *paths, *own]
    sys.argv = words
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=words[0], __builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = main
    code = compile(Path(words[0]).read_text(encoding="utf-8"), words[0], "exec")
    try:
        exec(code, main.__dict__)
    except Exception as error:  # noqa: BLE001 - as the interpreter does, without the frames of this file
        trace: Any = error.__traceback__
        sys.excepthook(type(error), error.with_traceback(trace.tb_next), trace.tb_next)
        sys.exit(1)


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))
