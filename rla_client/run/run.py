"""One open run in the training process: its description, its stream, its end; and the current logger.

A run is described by the payload of its OPEN frame (`opening`), which is all the agent knows of
it: who writes, the data root with its device and inode, the folders below it, the outputs. The
description also goes into the environment variable RLA_RUN, so that worker processes of this run
join it with streams of their own.

The end. A run is closed by `close`, by a later run of the same owner, or at interpreter exit:
`interrupted` when Ctrl-C ended the program, `failed` when another exception did, else `finished`.
A process that is killed says nothing, and its released lock tells the agent. `sys.exit(3)` is
`finished` too: SystemExit passes by sys.excepthook, exit functions do not see it, and a replaced
`sys.exit` would take a SystemExit that somebody catches for the end.

What catches Ctrl-C and leaves, as click and typer do, is `interrupted`: `sys.exit` is replaced only to
note a call while a KeyboardInterrupt is handled, or with the status of a signal that tells a program to stop
(130 for Ctrl-C, 143 for SIGTERM). A row after it says that the program went on. A handler of SIGINT would be
surer, but asyncio and others treat Ctrl-C in another way where one is set. `raise SystemExit` is not seen,
except in a `with` block of ours.

A program's own handlers of such signals stay its own: none is wrapped, replaced or called by us. That one was
called is seen where it is still at work (it is on the stack, or the exception that it raised is on its way):
at `sys.exit`, at `close`, in sys.excepthook. A handler that only sets a flag leaves no trace here: that run
is `finished`, unless `rla-agent run` passed the signal on and says so. Either way it continues
(`resume.where_to_continue`).

What ended a run is a line in its run.json, and the traceback in its text log: Python prints it to stderr,
which may be gone. All this runs inside of sys.excepthook, where an exception of our own would stand before
the user's, and the run would end as finished: so whatever a user's class raises when it is asked for its
text is caught.

The current logger is what `rla_client.logger` writes to, and whatever else says something of a run: that of
the thread's scope (`stream/scope.py`). Worker processes join the run of the process's scope.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import json
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from signal import SIGALRM, Signals, getsignal
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from rla_client.contract import __version__
from rla_client.contract.agent.agent_environment import shares_our_life
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import ArgumentError, RemoteProtocolError
from rla_client.contract.layout import ALWAYS_OUTPUTS, OUTPUT_NAMES, TAKEN_NAMES, TIMESTAMP
from rla_client.contract.process.account import user_name
from rla_client.contract.process.stop_signals import FOR_ANYTHING, STOPS, stopped_by
from rla_client.contract.safe_names import FILE_NAMES, check_relative
from rla_client.contract.spool.opening import LAUNCH_VARIABLE, Continuation, Earlier, Opening, labelled
from rla_client.contract.spool.protocol import REPLICATE_NOW, FrameKind, pack
from rla_client.run.recording import BACKUP, ERROR, INFO, WARN, Logger, shown_text
from rla_client.stream import scope
from rla_client.stream.clock import time_step_holder
from rla_client.stream.outbox import Outbox
from rla_client.stream.values import text_of

if TYPE_CHECKING:
    from rla_client.config.schema import AgentConfig

ASK_AGAIN_S = 0.1
ANSWER_S = 2.0  # for one question; then it is asked again
REASON_CHARS = 2000  # of what run.json says
FOR_ANYTHING_ELSE = FOR_ANYTHING | {
    SIGALRM
}  # a time limit of one step, say: what its handler raises tells nothing
MAX_CHAIN = 100  # exceptions behind an exception that are looked at
TRACEBACK_HEAD = "Traceback (most recent call last):"
TRACEBACK_LINES = 100  # the end tells where it happened; a deep recursion has thousands
TRACEBACK_BYTES = 64 << 10  # a message may hold a whole array
RUN_VARIABLE = "RLA_RUN"
WRITER_VARIABLE = "RLA_WRITER_FOLDER"  # log_dir of the run's first SummaryWriter, for its workers
MODE_VARIABLE = "RLA_MODE"
MODES = ("", "online", "offline", "disabled")
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")

MAX_RANK_DIGITS = 9  # no job has a billion processes

_open_runs: list[Run] = []
_failure: deque[tuple[str, str, str, float]] = deque(maxlen=1)  # the last of a session; see `_note`
_to_await: deque[tuple[Outbox, float]] = deque(maxlen=64)  # closed ones; older ones are committed


class Run:
    """An open run: `logger` for its records, `close` for its end."""

    def __init__(self, logger: Logger, opening: Opening | None, settings: AgentConfig) -> None:
        self.logger = logger
        self.opening = opening
        self._settings = settings
        self.pid = os.getpid()
        self._closed = False
        self.at_close: list[Callable[[], None]] = []  # called once it has closed
        _install_hooks()
        _end_with_worker()
        _open_runs.append(self)

    @property
    def outbox(self) -> Outbox | None:
        """The stream, None when nothing is stored (RLA_MODE=disabled, ranks above 0)."""
        return self.logger.outbox

    def mark(self, name: str, data: object) -> None:
        """Tell the agent something about the run (plain data)."""
        if self.outbox is not None:
            self.outbox.put(FrameKind.MARK, pack([name, data]), time.time())

    def file(self, kind: str, path: str, content: bytes) -> None:
        """Have the agent keep `content` durably as `path` in the item folder of `kind`."""
        if self.outbox is not None:
            self.outbox.file(kind, path, content)

    def go_on(self, **continues: Any) -> bool:  # noqa: ANN401 - plain data
        """Go on in a new stream, for which something other than the next record is due (see `Outbox.go_on`).

        Args:
            **continues: of the new opening's `Continuation`.

        Returns:
            False when the spool takes no new stream; the run continues as before.
        """
        if self.outbox is None or self.opening is None:
            return False
        before = self.opening.continues
        earlier = Earlier() if before is None else before.earlier
        return self.outbox.go_on(lambda old: Continuation(**continues, after=(old,), earlier=earlier))

    def replicate_now(self, *, wait: bool, timeout: float) -> bool:
        """Have it replicated at once, instead of at the agent's next look, which comes without a call.

        A mark in the stream says so, which the agent passes on with the next commit. Never raises because
        of the agent or the network.

        Args:
            wait: return when everything recorded or written so far is on the master. The agent is asked
                whether all of the item is there, as its files lie here.
            timeout: seconds to wait at most.

        Returns:
            Without `wait` True: it was asked for. With it, whether all of the run's files are on the
            master; False at once where the run has no item or is not replicated.
        """
        outbox, opening = self.outbox, self.opening
        if outbox is None or opening is None or not opening.table or opening.master or opening.offline:
            return False
        deadline = time.monotonic() + timeout
        self.mark(REPLICATE_NOW, {})
        outbox.push()
        if not wait:
            return True
        if not outbox.flush(timeout, media=True):
            return False
        from rla_client.contract.agent.dealer import ask  # noqa: PLC0415 - not at import of the package

        header = {"root": opening.root, "item": f"{opening.table}/{opening.index}"}
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            answer = ask(find_places().control_socket, header, min(ANSWER_S, left_s))
            if answer is not None:
                found = answer.get("replicated")
                if found is None or found:
                    return bool(found)
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(ASK_AGAIN_S, max(0.0, deadline - time.monotonic())))

    def close(self, state: str, reason: str, details: str = "") -> None:
        """End the run; does nothing the second time.

        Args:
            state: finished, interrupted or failed.
            reason: a line that says why; cut to REASON_CHARS.
            details: for its log; of a failed run, the traceback of what is being handled now.
        """
        if self._closed:
            return
        self._closed = True
        if self in _open_runs:
            _open_runs.remove(self)
        outbox = self.outbox
        if outbox is None:
            return
        if self.pid != os.getpid():
            outbox.release()  # a forked worker ends; the run itself continues
            return
        if state == "finished" and (by := _stop_at_work(sys.exc_info()[1])) is not None:
            state, reason = "interrupted", f"told to stop by {by.name}"
        if os.environ.get(RUN_VARIABLE) and self.opening and self.opening.run in os.environ[RUN_VARIABLE]:
            del os.environ[RUN_VARIABLE]
            os.environ.pop(WRITER_VARIABLE, None)
        self.logger.finish_rows()
        try:
            details = details or (active_traceback() if state == "failed" else "")
            if details:
                self.logger.log(details, level=ERROR, echo=False)  # Python prints it itself
        finally:  # Ctrl-C while the traceback is made must not leave the run open
            outbox.close(state, self.logger.shown(text_of(reason))[:REASON_CHARS])
        for call in self.at_close:
            call()
        if self._settings.exit_wait_s > 0 and shares_our_life():
            _to_await.append((outbox, self._settings.exit_wait_s))


def disabled() -> bool:
    """Whether RLA_MODE=disabled: every call works, no file, no agent.

    Raises:
        ArgumentError: RLA_MODE is none of disabled, offline, online.
    """
    if mode() not in MODES:
        raise ArgumentError(
            f"{MODE_VARIABLE} is disabled, offline or online; got {os.environ[MODE_VARIABLE]!r}"
        )
    return mode() == "disabled"


def mode() -> str:
    """RLA_MODE: one of MODES, or what somebody wrote instead."""
    return os.environ.get(MODE_VARIABLE, "").lower()


def rank() -> int:
    """Rank of this process in its job, 0 outside of one."""
    for name in RANK_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdecimal() and len(value) <= MAX_RANK_DIGITS:
            return int(value)
    return 0


def make_opening(
    *,
    root: str | os.PathLike[str],
    folders: Mapping[str, str],
    sinks: Iterable[str],
    names: Mapping[str, str],
    item: Mapping[str, Any],
    config_path: Path | None = None,
) -> Opening:
    """Describe a run.

    Args:
        root: data root, or the plain folder.
        folders: kind → path below `root`; `log` is required.
        sinks: outputs.
        names: output → file name in the log folder, where it is not the usual one.
        item: `table`, `index` and further attributes of an `Opening`; empty for a plain folder.
        config_path: the rla_config.yaml that the run was opened with.

    Raises:
        ArgumentError: a file name cannot be used, two outputs have the same, or a path is not UTF-8.
    """
    sinks = set(sinks) - {"stdout"}
    _check_names(sinks, names)
    real = check_path(root)
    if config_path is not None:
        check_path(config_path)
    found = os.stat(real)
    told: dict[str, Any] = {
        name: readable(value) if isinstance(value, str) else value for name, value in item.items()
    }
    opening = Opening(
        run=os.urandom(16).hex(),
        epoch=max(time.time_ns(), 0),
        opened=max(time.time(), 0.0),  # a clock before 1970 is a broken one; the run is kept all the same
        root=real,
        root_device=found.st_dev,
        root_inode=found.st_ino,
        folders=dict(folders),
        sinks=frozenset(sinks),
        names={**OUTPUT_NAMES, **names},
        offline=mode() == "offline",
        config=None if config_path is None else os.path.abspath(config_path),
        launch=readable(os.environ.get(LAUNCH_VARIABLE, "")[:64]),
        **_writer_fields(primary=True, label=""),
    )
    return opening._replace(**told)


def check_path(path: str | os.PathLike[str]) -> str:
    """The real path of a data root, log folder or configuration, which the agent must be able to name.

    Raises:
        ArgumentError: it is not UTF-8, or relative to a working folder that is gone.
    """
    try:
        real = os.path.realpath(path)
    except FileNotFoundError as error:
        raise ArgumentError(
            f"the path {readable(os.fspath(path))} starts from the working folder, which is gone"
        ) from error
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"the path {os.fspath(path)!a} cannot be used: {FILE_NAMES}; start it with PYTHONUTF8=1"
        ) from error
    if real == readable(real):
        return real
    try:
        text = os.fsencode(real).decode()
    except UnicodeDecodeError:
        message = f"the path {readable(real)} is not UTF-8: choose another folder, or rename it"
    else:
        message = f"the path {text!a} cannot be used: {FILE_NAMES}; start it with PYTHONUTF8=1"
    raise ArgumentError(message)


def readable(text: str) -> str:
    """The text, with bytes that are not UTF-8 (of a path, the environment) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _check_names(sinks: Iterable[str], names: Mapping[str, str]) -> None:
    """Refuse what no agent takes, before the first row waits for one.

    Raises:
        ArgumentError: a file name cannot be used, or two outputs have the same.
    """
    for output, name in names.items():
        if len(check_relative(name, what="output file name")) != 1:
            raise ArgumentError(
                f"the {output} output cannot be called {name!r}: a file name without a folder is needed"
            )
    owners = dict.fromkeys(TAKEN_NAMES, "what rla-agent itself writes there")
    for output, usual in OUTPUT_NAMES.items():
        if output not in sinks and output not in ALWAYS_OUTPUTS:
            continue
        name = names.get(output, usual)
        other = owners.setdefault(name, f"the {output} output")
        if other != f"the {output} output":
            raise ArgumentError(
                f"{other} and the {output} output cannot both be {name!r}: give one of them another name"
            )


def _writer_fields(*, primary: bool, label: str) -> dict[str, Any]:
    return {
        "primary": primary,
        "label": label,
        "pid": os.getpid(),
        "host": readable(os.uname().nodename),
        "user": readable(user_name() or str(os.getuid())),
        "python": readable(sys.executable or ""),
        "client": __version__,
    }


def worker_opening(opening: Opening, *, after: tuple[str, ...] | None = None) -> Opening | None:
    """Describe the stream of a worker process of the run: its outputs bear a label of its own.

    Args:
        opening: of the run's main process.
        after: of a rank that goes on in its own files: its earlier streams in this spool.
    """
    folder = opening.log_folder
    position = rank()
    if after is not None and opening.continues is not None:  # rank 0 has cut the tables
        goes_on = Continuation(
            abandoned=opening.continues.abandoned, after=after, earlier=opening.continues.earlier
        )
        own = opening._replace(continues=goes_on, **_writer_fields(primary=False, label=f"rank{position}"))
        return own if os.path.isdir(folder) else None
    wanted = f"rank{position}" if position else f"p{os.getpid()}"
    label = wanted
    for attempt in range(2, 1000):
        try:
            name = labelled(opening.names["warn"], label)
            os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            label = f"{wanted}-{attempt}"
        except OSError:
            return None  # the item is gone, so there is nothing to join
        else:
            break
    return opening._replace(**_writer_fields(primary=False, label=label))


def joined_logger() -> Logger | None:
    """The logger of a worker process whose parent opened a run; None where there is none."""
    try:
        description = json.loads(os.environ[RUN_VARIABLE])
        opening, sinks = Opening.from_fields(description["opening"]), tuple(description["sinks"])
    except (KeyError, ValueError, TypeError, RemoteProtocolError):
        return None
    if opening.pid == os.getpid() or disabled():
        return None
    if rank() > 0 and not description.get("all_ranks"):
        return Logger(opening.log_folder, ())

    def join(lock: threading.RLock) -> Outbox | None:
        from rla_client.config.schema import AgentConfig  # noqa: PLC0415 - not at import of the package

        own = worker_opening(opening)
        if own is None:
            return None
        outbox = Outbox(
            find_places(), own, AgentConfig(), lock=lock, as_worker=lambda: worker_opening(opening)
        )
        atexit.register(outbox.release)
        return outbox

    return Logger(opening.log_folder, sinks, join=join)


# -- the end of the process ---------------------------------------------------------------------

_hooks_installed = False


def _install_hooks() -> None:
    global _hooks_installed  # noqa: PLW0603 - once per process
    if _hooks_installed:
        return
    _hooks_installed = True
    former = sys.excepthook

    def note_failure(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        _note(error)
        former(kind, error, traceback)

    sys.excepthook = note_failure
    leave = sys.exit

    @functools.wraps(leave)
    def note_interrupt(status: Any = None, /) -> NoReturn:  # noqa: ANN401 - as sys.exit
        if threading.current_thread() is threading.main_thread():
            leaving = SystemExit(status)
            leaving.__context__ = sys.exc_info()[1]
            _note(leaving)
        leave(status)

    sys.exit = note_interrupt
    atexit.register(_close_at_exit)
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _end_with_worker() -> None:
    """Have runs closed at the end of a `multiprocessing` child, too: it knows no atexit and no excepthook."""
    util, process = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.process"))
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _close_at_worker_end, exitpriority=-100)  # after all others
        _see_what_is_printed()


@functools.cache
def _see_what_is_printed() -> None:
    """Note a worker's exception where `multiprocessing` prints it: since Python 3.13 finalizers run later."""
    import traceback  # noqa: PLC0415 - not at import of the package

    former: Callable[..., None] = traceback.print_exc

    def print_exc(*args: object, **kwargs: object) -> None:
        if sys._getframe(1).f_code.co_name == "_bootstrap":  # noqa: SLF001 - of multiprocessing
            _note(sys.exc_info()[1])
        former(*args, **kwargs)

    traceback.print_exc = print_exc


def _note(error: BaseException | None) -> None:
    """Remember what ends this process: state, reason and traceback, valid for runs without a row after it."""
    if error is None:
        return
    state, reason = ending(error)
    if state == "interrupted" or not isinstance(error, SystemExit):
        valid = time.time() if isinstance(error, SystemExit) else math.inf
        _failure.append((state, reason, traceback_text(error), valid))


def _close_at_worker_end() -> None:
    _note(sys.exc_info()[1])
    _close_at_exit()


def _close_at_exit() -> None:
    *noted, valid = _failure[-1] if _failure else ("finished", "", "", math.inf)
    for run in tuple(_open_runs):  # each leaves the list
        began = 0.0 if run.opening is None else run.opening.opened
        went_on = max(began, run.logger.last_row.get(TIMESTAMP, 0)) > valid
        state, reason, details = ("finished", "", "") if went_on else noted
        with contextlib.suppress(OSError):
            run.close(state, reason, details)
    _await_commits()


def _await_commits() -> None:
    """Where the agent dies with this process: wait for what was written, `exit_wait_s` in all at most."""
    began = time.monotonic()
    while _to_await:
        outbox, wait_s = _to_await.pop()
        left = wait_s - (time.monotonic() - began)
        if left > 0 and outbox.agent_alive():
            outbox.flush(left)


def _after_fork_in_child() -> None:
    _to_await.clear()
    _failure.clear()


def ending(error: BaseException) -> tuple[str, str]:
    """State and reason of a run that this exception ended."""
    reason = reason_text(error)
    if isinstance(error, SystemExit):
        behind = _interrupt_behind(error)
        if behind is not None:
            return "interrupted", reason_text(behind)
        named = stopped_by(error.code)
        if named is not None:
            return "interrupted", f"{reason} ({named.name})"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", reason
    by = _stop_at_work(error)
    return ("failed", reason) if by is None else ("interrupted", f"told to stop by {by.name}; {reason}")


def _stop_at_work(error: BaseException | None = None) -> Signals | None:
    """The signal whose handler, the program's own, is at work: calls us, or raised this exception."""
    handlers = {_code_of(getsignal(number)): number for number in STOPS}
    handlers.pop(None, None)
    if not handlers:
        return None
    if threading.current_thread() is threading.main_thread():  # where Python calls handlers
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - CPython's; what else walks a stack
        while frame is not None:
            number = handlers.get(frame.f_code)
            if number is not None and _was_given(frame, number):
                return number
            frame = frame.f_back
    for behind in _causes(error):
        traceback = behind.__traceback__
        while traceback is not None:
            number = handlers.get(traceback.tb_frame.f_code)
            if (
                number is not None
                and number not in FOR_ANYTHING_ELSE
                and _was_given(traceback.tb_frame, number)
            ):
                return number
            traceback = traceback.tb_next
    return None


def _was_given(frame: FrameType, number: int) -> bool:
    """Whether a function was called with a signal's number, as Python calls handlers."""
    code, values = frame.f_code, frame.f_locals
    given = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & inspect.CO_VARARGS:
        rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        given += rest if isinstance(rest, tuple) else ()
    return any(isinstance(value, int) and value == number for value in given)


def _code_of(handler: object) -> CodeType | None:
    """The code of a handler that is written in Python; None for any other."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)  # an object with a method of that name
    return code if isinstance(code, CodeType) else None


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The Ctrl-C that an exception was raised for, or while it was handled."""
    return next((behind for behind in _chain(error) if isinstance(behind, KeyboardInterrupt)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those behind it."""
    for _ in range(MAX_CHAIN):
        if error is None:
            return
        yield error
        error = error.__context__ if error.__cause__ is None else error.__cause__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it was raised for; of one that ends the program those around it."""
    for _ in range(MAX_CHAIN):
        if error is None:
            return
        yield error
        ends = isinstance(error, SystemExit | KeyboardInterrupt)
        error = error.__context__ if ends and error.__cause__ is None else error.__cause__


def reason_text(error: BaseException) -> str:
    """Class and message of an exception."""
    return f"{type(error).__name__}: {text_of(error)}".rstrip(": ")


def traceback_text(error: BaseException) -> str:
    """The last lines of a traceback, at most TRACEBACK_BYTES; empty where it cannot be made."""
    import traceback  # noqa: PLC0415 - not at import of the package

    try:
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    except Exception:  # noqa: BLE001 - see above; the traceback module asks more of it than its text
        return ""
    if len(lines) > TRACEBACK_LINES:  # with the head by which readers find it
        lines = [TRACEBACK_HEAD, "  ...", *lines[-TRACEBACK_LINES:]]
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    if len(text) > TRACEBACK_BYTES:
        head = f"{TRACEBACK_HEAD}\n  ...\n".encode()
        text = head + text[len(head) - TRACEBACK_BYTES :]
    return text.decode("utf-8", "ignore")


def active_traceback() -> str:
    """The same of the exception that is being handled; empty where there is none."""
    error = sys.exc_info()[1]
    return "" if error is None else traceback_text(error)


# -- the current logger -------------------------------------------------------------------------

_DEFAULT = Logger(None, ("stdout",))
_DEFAULT.reminder = (
    "no run is open, so rows are printed and not saved: call rla_client.init(...) first, "
    "or exp_manager.configure(...) and exp_manager.log_files_gen()"
)
current_logger = scope.Part(lambda: _DEFAULT)


_one: Logger | None = _DEFAULT  # of all threads; None: each has its own
copies: list[Callable[[Logger | None], None]] = []  # who keeps a copy of it is told of each change
_told_workers = ""


def get_current() -> Logger:
    """The logger that the functions of `rla_client.logger` use now."""
    return _one or current_logger()


def set_current(logger: Logger | None, place: scope.Scope | None = None) -> Logger:
    """Make `logger` (None: the one that only prints) the current one; returns the former.

    Args:
        logger: of the run.
        place: its scope; default this thread's, or a new one of its own where another thread's run is open.
    """
    here = scope.current()
    former = current_logger.of(here)
    if logger is None or logger is _DEFAULT:
        drop_current(former, here)
    elif place is None and here is not scope.process() and logger is current_logger.of(scope.process()):
        drop_current(former, here)
        scope.forget_own()
    elif place is not None or logger is not former:
        place = place or scope.room()
        scope.take(place)
        current_logger.put(logger, place)
    return former


def drop_current(logger: Logger, where: scope.Scope) -> None:
    """A logger is not the current one of a scope any more, if it was."""
    if current_logger.of(where) is logger:
        current_logger.put(_DEFAULT, where)
        scope.retire(where)


def _take_current(one: scope.Scope | None) -> None:
    global _one, _told_workers  # noqa: PLW0603 - copies of what the scopes have
    _one = None if one is None else current_logger.of(one)
    for take in copies:
        take(_one)
    for_workers = current_logger.of(scope.process()).for_workers
    told = os.environ.get(RUN_VARIABLE, "")
    if for_workers and told != for_workers:
        os.environ[RUN_VARIABLE] = _told_workers = for_workers
    elif not for_workers and told and told == _told_workers:
        del os.environ[RUN_VARIABLE]


def _tell_guess() -> None:
    current_logger.of(scope.process()).log(
        f"[WARN] the thread {threading.current_thread().name!r} has opened no run, and several are open: "
        "what it logs is part of this one. For another one, use what rla_client.init() gave: run.log(...), "
        "or `with run.active():` around the calls (told once)",
        level=WARN,
    )


scope.guesses.append(_tell_guess)
scope.changes.append(_take_current)
if (_joined := joined_logger()) is not None:
    scope.process().used = True
    current_logger.put(_joined, scope.process())


def info(*args: object) -> None:
    """`log` at level INFO."""
    get_current().log(*args, level=INFO)


def warn(*args: object) -> None:
    """`log` at level WARN, after `[WARN] <time-step> : `."""
    get_current().log(*_prefixed("WARN", args), level=WARN)


def backup(*args: object, echo: bool = True) -> None:
    """`log` at level BACKUP, after `[BACKUP] <time-step> : `; `echo=False` leaves stdout out."""
    get_current().log(*_prefixed("BACKUP", args), level=BACKUP, echo=echo)


def _prefixed(word: str, args: tuple[object, ...]) -> tuple[object, ...]:
    first = shown_text(args[0]) if args else ""
    return (f"[{word}] {time_step_holder.get_time()} : {first}", *args[1:])
