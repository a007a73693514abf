"""Points of our code at which a process waits to be killed, or kills itself.

A `sitecustomize` that stands first on PYTHONPATH wraps one function as soon as its module is imported.
At the point the process writes its number into a file, and waits until that file is gone. Where it is to die
*during* the function, it kills itself, for nothing would be going on while it waits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DURING_S: Final = 0.02  # a kill comes at a random moment within this time
_HOOK = """
import importlib.machinery, os, random, signal, sys, threading, time
where, _, name = os.environ.get("RLA_TEST_POINT", ":").partition(":")
when, number, within = (os.environ.get(f"RLA_TEST_POINT_{key}", "0") for key in ("WHEN", "NUMBER", "WITHIN"))
reached, text = os.environ.get("RLA_TEST_REACHED", ""), os.environ.get("RLA_TEST_POINT_ARGUMENT", "")
left = int(number)

def tell():
    with open(reached + ".tmp", "w") as file:
        file.write(str(os.getpid()))
    os.replace(reached + ".tmp", reached)

def hold():
    tell()
    while os.path.exists(reached):
        time.sleep(0.005)

def die():
    time.sleep(random.random() * float(within))
    tell()
    os.kill(os.getpid(), signal.SIGKILL)

def wrap(module):
    owner, last = module, name
    while "." in last:
        first, _, last = last.partition(".")
        owner = getattr(owner, first)
    original = getattr(owner, last)
    def wrapped(*arguments, **named):
        global left
        its_turn = text in repr(arguments)
        if its_turn:
            left -= 1
            its_turn = left == 0
        if its_turn and when == "before":
            hold()
        if its_turn and when == "during":
            threading.Thread(target=die, daemon=True).start()
        result = original(*arguments, **named)
        if its_turn and when == "after":
            hold()
        return result
    setattr(owner, last, wrapped)

class Finder:
    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname != where:
            return None
        sys.meta_path.remove(Finder)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            wrap(module)
        spec.loader.exec_module = exec_module
        return spec

if where:
    sys.meta_path.insert(0, Finder)
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of a function's call.

    Attributes:
        what: for people.
        function: `module:name`, of a class `module:Class.name`; of what is imported by name where it is used.
        when: relative to the call.
        argument: only calls count whose arguments, as `repr` shows them, hold this text.
    """

    what: str
    function: str
    when: Literal["before", "after", "during"]
    argument: str = ""


class Held:
    """Where a process of a machine is to wait; `folder` is one that it sees."""

    def __init__(self, folder: Path, point: Point, number: int) -> None:
        hooks = folder / "hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / "sitecustomize.py").write_text(_HOOK)
        self._reached = folder / "reached"
        self._reached.unlink(missing_ok=True)
        self.environment = {
            "PYTHONPATH": f"{hooks}{os.pathsep}{REPOSITORY}",
            "RLA_TEST_POINT": point.function,
            "RLA_TEST_POINT_WHEN": point.when,
            "RLA_TEST_POINT_NUMBER": str(number),
            "RLA_TEST_POINT_WITHIN": str(DURING_S),
            "RLA_TEST_POINT_ARGUMENT": point.argument,
            "RLA_TEST_REACHED": str(self._reached),
        }

    @property
    def process(self) -> int | None:
        """The process that waits at the point; None before one does."""
        try:
            return int(self._reached.read_text())
        except FileNotFoundError:
            return None

    def release(self) -> None:
        """Let it go on."""
        self._reached.unlink(missing_ok=True)
