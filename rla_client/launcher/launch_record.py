"""Launch record of a run.

`metadata.json` has garage's two keys and ours. `githash` ends in `-dirty` if the tree had changes, and in
`-unknown` if git could not report them; `launcher` is relative to the repository. `environment` has the
interpreter, machine, packages and variables that change results; `launch` has the command, folder,
function, number of the call and import folders. `variant.json` has the parameters (launch_parameters.py).

The launcher may change its working folder. A launcher that was started by a relative path (`python
scripts/launcher.py`) shows the folder of the start; otherwise it is the working folder at the import of
this module.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rla_client.code.repository import Repository
from rla_client.code.restored_secrets import is_hidden, refilled
from rla_client.code.run_secrets import Secrets
from rla_client.contract.errors import LaunchError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.run_file import MAX_RUN_FILE_BYTES, RUN_FILE
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.launcher.launch_parameters import described
from rla_client.stream.param_values import plain_hyper_param

METADATA_NAME = "metadata.json"
VARIANT_NAME = "variant.json"
# these change results on every machine, so a repeated run gets them again
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
try:
    _FIRST_FOLDER = os.getcwd()
except OSError:  # it was removed
    _FIRST_FOLDER = os.sep


@dataclass(frozen=True, slots=True)
class Launch:
    """Start of a program, with the call in it that made the run.

    Attributes:
        function: qualified name of the experiment's function.
        call: number of the call of that function in the program, from 0.
        script: absolute path of the launcher; None for an interactive session.
        module: name after `-m`; None when started by path.
        arguments: the further arguments of the command line.
        folder: working folder at the start.
        repository: root of the repository; None without one.
        snapshot_dir: folder of the snapshots, relative to the log folder.
        code_dir: folder of the code archive, relative to the log folder.
        config: path of the rla_config.yaml of the item's database.
        options: options of the decorator and the call, as plain data.
        outer: log folder of the experiment that this one was called in, relative to the log folder.
        import_folders: folders of the repository that modules are imported from, relative to its root.
        log_used: outputs of an item without a configuration file.
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
            LaunchError: the run was started in an interactive session; or its command line had secrets,
                which are not kept, and which the environment lacks.
        """
        if self.script is None:
            raise LaunchError("the run was started in an interactive session: there is no file to run again")
        what = ["-m", self.module] if self.module else [self._moved(self.script, root)]
        arguments, missing = refilled(self.arguments, os.environ)
        if missing:
            remedy = "; ".join(f"set {variable} to the value of {argument}" for argument, variable in missing)
            raise LaunchError(f"secrets of the command line are not kept; in the environment, {remedy}")
        return [sys.executable, *what, *arguments], self._moved(self.folder, root)

    def import_path(self, *, root: Path | None = None) -> list[str]:
        """Existing folders of the repository from which modules were imported.

        Args:
            root: look in this copy of the repository instead.
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
        module=None if spec is None else spec.name.removesuffix(".__main__"),
        arguments=secrets.command(str(argument) for argument in sys.argv[1:]),
        folder=_started_in(script),
        repository=None if repository is None else str(repository.root),
        options={key: plain_hyper_param(value) for key, value in secrets.parameters(options).items()},
        import_folders=[] if repository is None else _import_folders(repository.root, script),
    )


def _started_in(script: Path | None) -> str:
    """Working folder of the program's start."""
    whole = str(getattr(sys.modules.get("__main__"), "__file__", None) or "")  # that folder and the word
    for word in sys.orig_argv[1:] if script is not None else ():
        if os.path.basename(word) == os.path.basename(whole):
            below = not os.path.isabs(word) and whole.endswith(os.sep + word)
            return whole[: -len(word) - 1] or os.sep if below else _FIRST_FOLDER
    return _FIRST_FOLDER


def _import_folders(root: Path, script: Path | None) -> list[str]:
    """Folders below `root`, relative to it, from sys.path and from the files of imported modules.

    The launcher's own folder is left out: python adds it by itself.
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


def launcher_path() -> Path | None:
    """Script that python was started with; None in an interactive session."""
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


def is_of_launcher(log_dir: Path) -> bool:
    """Whether a launcher began a run."""
    return (log_dir / METADATA_NAME).exists()


def read_launch(log_dir: Path) -> tuple[Launch, dict[str, Any]]:
    """The launch and the parameters of a run.

    Raises:
        LaunchError: the folder has no readable launch record.
    """
    try:
        content = _metadata(log_dir)["launch"]
        parameters = json.loads((log_dir / VARIANT_NAME).read_bytes())
        known = {one.name for one in fields(Launch)}  # another release may say more
        return Launch(**{key: value for key, value in content.items() if key in known}), dict(parameters)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fault = "" if isinstance(error, FileNotFoundError) else f" ({error!r})"
        raise LaunchError(
            f"{log_dir} is no run of a launcher: it has no launch record of wrap_experiment{fault}\n"
            f"hint: {_other_way(log_dir)}"
        ) from error


def _other_way(log_dir: Path) -> str:
    """Hint how to continue a run without a launch record."""
    try:
        about = parse_json(read_small(log_dir / RUN_FILE, MAX_RUN_FILE_BYTES))
        key, finished = about.get("run_key"), about.get("state") == "finished"
    except (OSError, ValueError, AttributeError):
        return (
            "another run continues when its command is run again as RLA_RUN_ID=NAME RLA_RESUME=allow COMMAND"
        )
    if key and isinstance(key, str):
        goes_on = "it has finished; to go on from its last checkpoint" if finished else "to continue it"
        return f"{goes_on}, run its command again: RLA_RUN_ID={shlex.quote(key)} RLA_RESUME=allow COMMAND"
    if finished:
        return "it has finished, and was started without a run id: its command begins a new run"
    return (
        "it cannot continue, as it was started without a run id; RLA_RUN_ID=NAME RLA_RESUME=allow COMMAND "
        "starts a run, and continues it after a kill"
    )


def read_variables(log_dir: Path) -> dict[str, str]:
    """Environment variables of a run that change results; empty if none are recorded."""
    try:
        recorded = _metadata(log_dir)["environment"]["variables"]
        found = {key: str(recorded[key]) for key in RESULT_VARIABLES if key in recorded}
        return {key: value for key, value in found.items() if not is_hidden(value)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _metadata(log_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((log_dir / METADATA_NAME).read_bytes())
    return found
