"""The launch record: what a run was started with, enough to start it again.

`metadata.json` holds garage's two keys (`githash`, with `-dirty` behind it when the tree had
changes and `-unknown` when git did not say whether it had, and `launcher`, relative to the repository)
and ours: `environment` (interpreter, machine, packages, variables that change results) and `launch`
(command, folder, function, which call of it, where modules came from). `variant.json` holds the
parameters as plain data.

The launcher may change its working folder. The one that it was started in is told by a launcher
that was named relative to it (`python scripts/launcher.py`); else it is the one in which this module was
imported.

How a started launcher learns that it is to repeat or continue one of its runs.

`rla resume` and `rla rerun` start the launcher as it was started first, with `RLA_RELAUNCH` set:
which call of which wrapped function is meant, the folder it is to use, its recorded parameters,
and from which snapshot it continues. That call runs there; every other call of a wrapped function
at top level is passed over, so a launcher that runs several experiments, or has no
`if __name__ == "__main__"`, repeats only the one.

A launcher may make its calls in several processes (multiprocessing.Pool), which all inherit the
variable, and in which the number of a call means nothing. There the first call that becomes the
recorded one by its parameters is taken. What the run itself starts does not see the variable; processes
that the launcher starts after it do, or their runs would be made anew. A token, a file that only one
process can remove, makes sure that it is one; a token that is still there at the end says that no call was.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rla_client.code.launch_archive import Repository
from rla_client.code.secrets import Secrets, is_hidden, refilled, restored
from rla_client.contract.errors import LaunchError
from rla_client.contract.files import write_atomic
from rla_client.launcher.context import ResumeFrom
from rla_client.launcher.recorded_parameters import described, fits
from rla_client.stream.values import plain_hyper_param

VARIABLE = "RLA_RELAUNCH"

_calls: Counter[tuple[str, bool]] = Counter()
_wanted: list[Relaunch] = []
METADATA_NAME = "metadata.json"
VARIANT_NAME = "variant.json"


@dataclass(frozen=True, slots=True)
class Launch:
    """How the program was started, and which call in it the run is.

    Attributes:
        function: qualified name of the experiment's function.
        call: which call of that function in the program, from 0.
        script: absolute path of the launcher; None for an interactive session.
        module: name behind `-m`, None when started by path.
        arguments: what came behind it on the command line.
        folder: working folder at the start.
        repository: root of the repository, None without one.
        snapshot_dir: where snapshots lie, relative to the log folder.
        code_dir: where the code archive lies, relative to the log folder.
        config: path of the rla_config.yaml of the item's database.
        options: options of the decorator and the call, as plain data.
        outer: log folder of the experiment that this one was called in, relative to the log folder.
        import_folders: folders of the repository that modules are imported from, relative to its root.
        log_used: outputs of an item whose configuration is not a file.
    """

    function: str
    call: int
    script: str | None
    module: str | None
    arguments: list[str]
    folder: str
    repository: str | None
    snapshot_dir: str = "."
    code_dir: str = "."
    config: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    outer: str | None = None
    import_folders: list[str] = field(default_factory=list)
    log_used: list[str] | None = None

    def command(self, *, root: Path | None = None) -> tuple[list[str], str]:
        """Command line and working folder that start the program again.

        Args:
            root: run it from this copy of the repository instead.

        Raises:
            LaunchError: it was no program but an interactive session; or it was given secrets, which are not
                kept, and which the environment lacks.
        """
        if self.script is None:
            raise LaunchError("the run was started in an interactive session: there is no file to run again")
        what = ["-m", self.module] if self.module else [self._moved(self.script, root)]
        arguments, missing = refilled(self.arguments, os.environ)
        if missing:
            told = "; ".join(f"set {variable} to the value of {argument}" for argument, variable in missing)
            raise LaunchError(f"secrets of the command line are not kept; in the environment, {told}")
        return [sys.executable, *what, *arguments], self._moved(self.folder, root)

    def import_path(self, *, root: Path | None = None) -> list[str]:
        """Folders of the repository that modules came from, as far as they are there.

        Args:
            root: in this copy of the repository instead.
        """
        base = root or (None if self.repository is None else Path(self.repository))
        folders = [] if base is None else [os.path.normpath(base / folder) for folder in self.import_folders]
        return [folder for folder in folders if os.path.isdir(folder)]

    def _moved(self, path: str, root: Path | None) -> str:
        if root is None:
            return path
        below = os.path.relpath(path, self.repository or os.path.dirname(self.script or ""))
        if below.startswith(".."):
            return str(root) if path == self.folder else path
        return os.path.normpath(root / below)


def describe_launch(
    function: str, call: int, repository: Repository | None, options: Mapping[str, Any], secrets: Secrets
) -> Launch:
    """The launch of this process, with its secrets hidden."""
    script = launcher_path()
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return Launch(
        function=function,
        call=call,
        script=None if script is None else str(script),
        module=None if spec is None else _module_name(spec.name),
        arguments=secrets.command(str(argument) for argument in sys.argv[1:]),
        folder=_started_in(script),
        repository=None if repository is None else str(repository.root),
        options={key: plain_hyper_param(value) for key, value in secrets.parameters(options).items()},
        import_folders=[] if repository is None else _import_folders(repository.root, script),
    )


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.sep


_FIRST_FOLDER = _here()


def _started_in(script: Path | None) -> str:
    """Working folder of the program's start."""
    whole = str(getattr(sys.modules.get("__main__"), "__file__", None) or "")  # that folder and the word
    for word in sys.orig_argv[1:] if script is not None else ():
        if os.path.basename(word) == os.path.basename(whole):
            below = not os.path.isabs(word) and whole.endswith(os.sep + word)
            return whole[: -len(word) - 1] or os.sep if below else _FIRST_FOLDER
    return _FIRST_FOLDER


def _import_folders(root: Path, script: Path | None) -> list[str]:
    """Where below `root` modules come from: of sys.path, and of what was imported in any other way.

    The launcher's own folder is left out: python takes it anyway.
    """
    found = [os.path.realpath(entry) for entry in sys.path if entry and os.path.isdir(entry)]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and "." not in name and name != "__main__":
            path = os.path.dirname(os.path.realpath(file))
            found.append(os.path.dirname(path) if hasattr(module, "__path__") else path)
    below = [Path(path) for path in dict.fromkeys(found) if Path(path).is_relative_to(root)]
    foreign = {"site-packages", "dist-packages"}
    installed = [Path(os.path.realpath(prefix)) for prefix in {sys.prefix, sys.base_prefix}]
    return [
        os.path.relpath(path, root)
        for path in below
        if not foreign & {*path.parts}
        and not any(path.is_relative_to(prefix) and prefix.is_relative_to(root) for prefix in installed)
        and (script is None or path != script.parent)
    ]


def _module_name(name: str) -> str:
    return name.removesuffix(".__main__")


def launcher_path() -> Path | None:
    """The file that python was started with; None in an interactive session."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return Path(path).resolve()


def environment_record(secrets: Secrets) -> dict[str, Any]:
    """Interpreter, machine and installed packages."""
    from importlib import metadata  # noqa: PLC0415 - takes milliseconds to import

    packages = {dist.name: dist.version for dist in metadata.distributions() if dist.name}
    record: dict[str, Any] = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        "variables": {key: secrets.text(os.environ[key]) for key in _VARIABLES if key in os.environ},
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        record["gpus"] = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return record


# they change results wherever they are set, so a repeated run gets them again
RESULT_VARIABLES = (
    "PYTHONHASHSEED",
    "CUBLAS_WORKSPACE_CONFIG",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "TF_DETERMINISTIC_OPS",
    "TF_CUDNN_DETERMINISTIC",
    "XLA_FLAGS",
)
_VARIABLES = (*RESULT_VARIABLES, "CUDA_VISIBLE_DEVICES")


_STATES = {True: "-dirty", False: "", None: "-unknown"}  # of the tree, behind the commit


def write_record(
    folder: Path,
    launch: Launch,
    repository: Repository | None,
    parameters: Mapping[str, Any],
    secrets: Secrets,
) -> None:
    """Write metadata.json and variant.json into `folder`."""
    metadata: dict[str, Any] = {}
    if repository is not None and repository.githash:
        metadata["githash"] = repository.githash + _STATES[repository.dirty]
    if launch.script is not None:
        script = launch.script
        metadata["launcher"] = os.path.relpath(script, repository.root) if repository else script
    metadata["environment"] = environment_record(secrets)
    metadata["launch"] = asdict(launch)
    write_atomic(folder / METADATA_NAME, to_json(metadata))
    write_atomic(folder / VARIANT_NAME, to_json(secrets.parameters(described(parameters))))


def to_json(content: Mapping[str, Any]) -> bytes:
    """Readable JSON, keys sorted."""
    return (json.dumps(content, indent=4, sort_keys=True, default=repr) + "\n").encode()


def read_launch(log_dir: Path) -> tuple[Launch, dict[str, Any]]:
    """The launch and the parameters of a run.

    Raises:
        LaunchError: the folder has no launch record of ours.
    """
    try:
        content = _metadata(log_dir)["launch"]
        parameters = json.loads((log_dir / VARIANT_NAME).read_bytes())
        known = {one.name for one in fields(Launch)}  # another release may say more
        return Launch(**{key: value for key, value in content.items() if key in known}), dict(parameters)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fault = "" if isinstance(error, FileNotFoundError) else f" ({error!r})"
        message = (
            f"{log_dir} has no launch record that wrap_experiment wrote{fault}. Other runs keep their "
            "code below code/ and continue with configure(run_id=…, resume='allow')"
        )
        raise LaunchError(message) from error


def read_variables(log_dir: Path) -> dict[str, str]:
    """Environment variables of a run that change results; empty where none are recorded."""
    try:
        recorded = _metadata(log_dir)["environment"]["variables"]
        found = {key: str(recorded[key]) for key in RESULT_VARIABLES if key in recorded}
        return {key: value for key, value in found.items() if not is_hidden(value)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _metadata(log_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((log_dir / METADATA_NAME).read_bytes())
    return found


@dataclass(frozen=True, slots=True)
class Relaunch:
    """What RLA_RELAUNCH says.

    Attributes:
        function: qualified name of the wrapped function.
        call: which call of it, from 0.
        log_dir: folder to use as it is.
        snapshot_dir: folder of its snapshots.
        config: path of rla_config.yaml, where the folder is an item's.
        parameters: recorded parameters, plain data.
        resume_from: snapshot to continue from; None for a run from the beginning.
        log_used: outputs of an item without a configuration file; None: the usual ones.
        token: file that the process which makes the run removes.
        starter: pid of `rla`, the parent of the launcher itself, not of processes that it starts.
    """

    function: str
    call: int
    log_dir: str
    snapshot_dir: str
    config: str | None
    parameters: dict[str, Any]
    resume_from: ResumeFrom = None
    log_used: list[str] | None = None
    token: str | None = None
    starter: int | None = None

    def to_variable(self) -> str:
        """Value for the environment variable."""
        return json.dumps(asdict(self))

    def is_for(self, function: str, call: int, parameters: Mapping[str, Any]) -> bool:
        """Whether this call is meant. True for one call in all processes of the launcher."""
        if function != self.function:
            return False
        pooled = self.starter is not None and os.getppid() != self.starter
        if not (fits(parameters, restored(self.parameters, parameters, [])) if pooled else call == self.call):
            return False
        return self._take_token()

    def _take_token(self) -> bool:
        if self.token is None:
            return True
        try:
            os.unlink(self.token)
        except FileNotFoundError:
            return False
        return True


def wanted() -> Relaunch | None:
    """The run this process was started to repeat or continue; None in an ordinary launch.

    Raises:
        LaunchError: the variable holds something else.
    """
    value = os.environ.get(VARIABLE, "")
    if _wanted or not value:
        return _wanted[0] if _wanted else None
    try:
        known = {field.name for field in fields(Relaunch)}  # another release may say more
        found = {key: content for key, content in json.loads(value).items() if key in known}
        _wanted[:] = [Relaunch(**found)]
        return _wanted[0]
    except (ValueError, TypeError, AttributeError) as error:
        message = f"{VARIABLE} is not what `rla resume` and `rla rerun` set: {error}"
        raise LaunchError(message) from error


@contextmanager
def taken() -> Iterator[None]:
    """Around the wanted run: what it starts is its own and sees no variable."""
    value = os.environ.pop(VARIABLE, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[VARIABLE] = value


def count_call(function: str, *, nested: bool) -> int:
    """Which call of `function` in this process begins now, from 0.

    Calls inside of other experiments are counted by themselves: a relaunch does not make them.
    """
    key = (function, nested)
    number = _calls[key]
    _calls[key] += 1
    return number


def top_level_calls() -> int:
    """How many calls of experiments that are not inside of another began in this process."""
    return sum(number for (_function, nested), number in _calls.items() if not nested)


def relaunch_of(
    launch: Launch, log_dir: Path, snapshots: Path, parameters: dict[str, Any], source: ResumeFrom
) -> Relaunch:
    """The call that was recorded, once more: in `log_dir`, from the snapshot `source`."""
    return Relaunch(
        launch.function,
        launch.call,
        str(log_dir),
        str(snapshots),
        launch.config,
        parameters,
        source,
        launch.log_used,
    )
