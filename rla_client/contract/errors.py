"""The error tree of both packages.

Every error of the packages derives from `RlaError`. If a built-in error has the same meaning, it also derives
from that, so that a caller's `except ValueError` keeps working. A message says what was wrong, in the user's
words, and what to do. `extra` converts a failed import of an optional library into such an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_CALLED = {"google": "protobuf", "torch": "PyTorch", "h11": "uvicorn"}  # a module, by its known name


class RlaError(Exception):
    """Any error that rla_client or rla_agent raises on purpose."""


class ArgumentError(RlaError, ValueError):
    """A call got an invalid argument. Nothing was done."""


class ShardedContentError(ArgumentError):
    """A checkpoint has, or would have, only one rank's part of tensors that are distributed over several.

    Attributes:
        what: such a tensor, with its shape.
    """

    def __init__(self, message: str, what: str) -> None:
        self.what = what
        super().__init__(message)


class UnknownNameError(ArgumentError):
    """A name is unknown or ambiguous; the message has a line `hint: …`."""


class UnknownParameterError(ArgumentError, KeyError):
    """A hyper-parameter is not set under this name."""

    def __str__(self) -> str:
        return ValueError.__str__(self)  # KeyError's puts quotes around the message


class MissingExtraError(RlaError, ImportError):
    """A call needs a library that an extra installs; the message has the command. `name` is the library."""


class NotConfiguredError(RlaError, RuntimeError):
    """A call needs `exp_manager.configure(...)` or `log_files_gen()` first."""


class ConfigError(RlaError, ValueError):
    """`rla_config.yaml` has faults. `faults` lists all of them, one line of text each."""

    def __init__(self, source: str, faults: list[str]) -> None:
        self.source = source
        self.faults = list(faults)
        lines = "\n".join(f"  - {fault}" for fault in self.faults)
        super().__init__(f"{source} has {len(self.faults)} fault(s):\n{lines}")


class UnsafeNameError(ArgumentError):
    """A name would leave its folder, or cannot be a file name on any common file system."""


class RemoteProtocolError(RlaError):
    """The peer's bytes break the protocol (their fault); never raised for our own mistakes."""


class UnknownVersionError(RemoteProtocolError):
    """A frame or message is of a protocol version that this release does not know."""


class FrameTooLargeError(ArgumentError):
    """A record is larger than `protocol.MAX_FRAME_BYTES`; it cannot be logged as one row."""


class SpoolError(RlaError, OSError):
    """A spool file could not be created, written or read."""


class PlaceError(RlaError, OSError):
    """A folder or program cannot be used: wrong owner, open to others, or on NFS.

    Attributes:
        what: the problem.
        fix: what to do about it; empty where nothing can be done.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}; {fix}" if fix else what)


class AgentRunningError(RlaError):
    """Another agent already serves this state folder. `holder` says which."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(f"an agent already serves this folder: {holder}")


class AgentNotRunningError(RlaError):
    """A command needs a running agent and there is none."""


class NotSetupError(RlaError, RuntimeError):
    """A runner was asked to train, sample or save before `setup(...)` or `restore(...)`."""


class NotAFileError(RlaError, OSError):
    """A path that should name a snapshot file names something else."""


class SnapshotError(RlaError, RuntimeError):
    """The training state cannot be pickled, or a snapshot cannot be read back."""


class WorkerError(RlaError, RuntimeError):
    """A sampler worker failed again and again; the message holds its traceback."""


class LaunchError(RlaError, RuntimeError):
    """A run's launch record does not allow what was asked (resume, rerun, restore-code)."""


class DatabaseError(RlaError):
    """Reading or changing a database failed; the message names the file or table."""


class BrokenFileError(DatabaseError, ValueError):
    """A file of a database cannot be understood. `path` names it; the other files are fine."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path} cannot be read: {problem}")


class NoSuchTableError(DatabaseError, LookupError):
    """The database has no such task table."""


class NoSuchRunError(DatabaseError, LookupError):
    """No run of the database matches the request."""


class AmbiguousRunError(DatabaseError, LookupError):
    """Several runs match where one is required."""


class QueryCountError(DatabaseError, AssertionError):
    """`single_experiment_query` found none or several; as in RLA also an AssertionError."""


class LiveRunError(DatabaseError):
    """A run that is being written would have been changed; nothing was done."""


class NoCheckpointError(RlaError, FileNotFoundError):
    """There is no checkpoint of that name or time-step."""


class FetchError(RlaError, OSError):
    """A file that is on the master alone could not be fetched; it is still there."""


class StillWrittenError(FetchError):
    """The run to be continued is being written on another machine."""


class NotBroughtError(FetchError):
    """The run to be continued is on the master, and cannot be fetched as it is."""


class NotOnMasterError(FetchError):
    """Files of another machine are not, or not completely, on the master yet."""


# their names in the answer to a fetch request
FETCH_KINDS = {
    "still_written": StillWrittenError,
    "not_there": NotOnMasterError,
    "not_brought": NotBroughtError,
}


class UntrustedCheckpointError(RlaError, ValueError):
    """A checkpoint has objects that only running code from the file could rebuild."""


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Context around imports of an extra's libraries.

    Args:
        name: of the extra in pyproject.toml.
        what: the feature that needs it, in the user's words: "rla export".

    Raises:
        MissingExtraError: a module is not installed; the message names it and the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        needed = _CALLED.get(error.name or "", error.name)
        message = f"{what} needs {needed}: pip install 'rla-agent[{name}]'"
        raise MissingExtraError(message, name=error.name) from error
