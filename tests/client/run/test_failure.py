"""What is kept of an exception, also of one that does not let itself be told."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rla_client.run import failure
from rla_client.run.failure import TRACEBACK_BYTES, active_traceback, ending, reason_text, traceback_text


class OddError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class OddNotesError(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise ZeroDivisionError


def test_the_reason_names_class_and_message() -> None:
    assert reason_text(ValueError("diverged")) == "ValueError: diverged"
    assert reason_text(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert reason_text(ValueError("\udcff")) == "ValueError: \\udcff"


@pytest.mark.parametrize("error", [OddError(), OddNotesError()])
def test_an_odd_exception_is_told_as_far_as_it_goes(error: Exception) -> None:
    assert reason_text(error).startswith(type(error).__name__)
    text = traceback_text(error)  # what the traceback module makes of it depends on Python's version
    assert text == "" or type(error).__name__ in text


def test_a_traceback_ends_with_the_end_and_is_text_whatever_it_holds() -> None:
    text = traceback_text(ValueError("\udcff" + "é" * TRACEBACK_BYTES))
    assert len(text.encode()) <= TRACEBACK_BYTES
    assert text.endswith("é")


def test_the_exception_that_is_being_handled() -> None:
    assert active_traceback() == ""
    try:
        {"known": 1}["caught"]
    except KeyError:
        assert active_traceback().endswith("KeyError: 'caught'")


def leaving(status: object, caught: BaseException | None = None) -> SystemExit:
    """The SystemExit of a program that leaves because of what it caught."""
    try:
        try:
            raise caught or ZeroDivisionError
        except KeyboardInterrupt as error:
            raise RuntimeError("Aborted") from error
    except (RuntimeError, ZeroDivisionError):
        with pytest.raises(SystemExit) as raised:
            sys.exit(status)  # type: ignore[arg-type]
    return raised.value


def test_an_exit_because_of_ctrl_c_is_no_failure() -> None:
    for status in (0, 1, "stopped", None):
        assert ending(leaving(status, KeyboardInterrupt())) == ("interrupted", "KeyboardInterrupt")
    assert ending(leaving(130)) == ("interrupted", "SystemExit: 130 (SIGINT)")
    assert ending(leaving(143)) == ("interrupted", "SystemExit: 143 (SIGTERM)")
    assert ending(leaving(139))[0] == "failed", "a crash"
    assert ending(leaving(1)) == ("failed", "SystemExit: 1")
    circle = SystemExit(1)
    circle.__cause__ = circle
    assert ending(circle)[0] == "failed"


def stop(*_: object) -> str:
    """A handler that a program calls at its normal end, too."""
    found = failure.stop_at_work()
    return "" if found is None else found.name


class TooSlowError(Exception):
    pass


def too_slow(signum: int, frame: object) -> None:
    raise TooSlowError(signum)


@pytest.fixture
def handlers() -> Iterator[Callable[[signal.Signals, Any], None]]:
    """Sets handlers that are taken back at the end."""
    former: list[tuple[signal.Signals, Any]] = []

    def put(number: signal.Signals, handler: Any) -> None:
        former.append((number, signal.signal(number, handler)))

    yield put
    for number, handler in reversed(former):
        signal.signal(number, handler)


def test_a_handler_that_the_program_calls_itself_is_no_signal(
    handlers: Callable[[signal.Signals, Any], None],
) -> None:
    said: list[str] = []
    handlers(signal.SIGTERM, stop)
    assert stop() == ""

    def called(*given: object) -> None:
        said.append(stop(*given))

    handlers(signal.SIGTERM, called)
    called()
    signal.raise_signal(signal.SIGTERM)
    assert said == ["", "SIGTERM"]


@pytest.mark.parametrize(
    ("number", "raised", "state"),
    [
        (signal.SIGTERM, None, "interrupted"),
        (signal.SIGALRM, None, "failed"),
        (signal.SIGUSR1, None, "failed"),
        (signal.SIGTERM, ValueError, "failed"),
        (signal.SIGTERM, SystemExit, "interrupted"),
    ],
)
def test_what_was_caught_before_an_error_is_not_its_cause(
    number: signal.Signals,
    raised: type[BaseException] | None,
    state: str,
    handlers: Callable[[signal.Signals, Any], None],
) -> None:
    handlers(number, too_slow)
    try:
        try:
            signal.raise_signal(number)
        except TooSlowError:
            if raised is None:
                raise
            raise raised("a bug in what followed")  # noqa: B904 - as programs do
    except BaseException as error:  # noqa: BLE001 - SystemExit among them
        found = ending(error)[0]
    assert found == state
