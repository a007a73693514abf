"""The launch record: what a run was started with, enough to start it again.

`metadata.json` holds garage's two keys (`githash`, with `-dirty` behind it when the tree had
changes, and `launcher`, relative to the repository) and ours: `environment` (interpreter,
machine, packages) and `launch` (command, folder, function, which call of it). `variant.json`
holds the parameters as plain data.

Git is asked with a deadline and never fatal: what could not be learned is left out.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rla_client.errors import LaunchError
from rla_client.storage import write_atomic
from rla_client.values import plain_hyper_param

GIT_TIMEOUT_S = 10.0  # a repository on a sleeping network disk must not hold up the training
METADATA_NAME = "metadata.json"
VARIANT_NAME = "variant.json"


@dataclass(frozen=True, slots=True)
class Repository:
    """The git repository of a launcher."""

    root: Path
    githash: str | None
    dirty: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """How the program was started, and which call in it the run is.

    Attributes:
        function: qualified name of the experiment's function.
        call: which call of that function in the program, from 0.
        script: absolute path of the launcher; None for an interactive session.
        module: name behind `-m`, None when started by path.
        arguments: what came behind it on the command line.
        folder: working folder.
        repository: root of the repository, None without one.
        snapshot_dir: where snapshots lie, relative to the log folder.
        code_dir: where the code archive lies, relative to the log folder.
        config: path of the rla_config.yaml of the item's database.
        options: options of the decorator and the call, as plain data.
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

    def command(self, *, root: Path | None = None) -> tuple[list[str], str]:
        """Command line and working folder that start the program again.

        Args:
            root: run it from this copy of the repository instead.

        Raises:
            LaunchError: it was no program but an interactive session.
        """
        if self.script is None:
            raise LaunchError("the run was started in an interactive session: there is no file to run again")
        what = ["-m", self.module] if self.module else [self._moved(self.script, root)]
        return [sys.executable, *what, *self.arguments], self._moved(self.folder, root)

    def _moved(self, path: str, root: Path | None) -> str:
        if root is None:
            return path
        below = os.path.relpath(path, self.repository or os.path.dirname(self.script or ""))
        if below.startswith(".."):
            return str(root) if path == self.folder else path
        return os.path.normpath(root / below)


def describe_launch(
    function: str, call: int, repository: Repository | None, options: Mapping[str, Any]
) -> Launch:
    """The launch of this process."""
    script = launcher_path()
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return Launch(
        function=function,
        call=call,
        script=None if script is None else str(script),
        module=None if spec is None else _module_name(spec.name),
        arguments=[str(argument) for argument in sys.argv[1:]],
        folder=os.getcwd(),
        repository=None if repository is None else str(repository.root),
        options={key: plain_hyper_param(value) for key, value in options.items()},
    )


def _module_name(name: str) -> str:
    return name.removesuffix(".__main__")


def launcher_path() -> Path | None:
    """The file that python was started with; None in an interactive session."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if path is None or not os.path.isfile(path):
        return None
    return Path(path).resolve()


def find_repository(folder: Path, ignored: tuple[Path, ...]) -> Repository | None:
    """The git repository around `folder`; changes below the `ignored` folders do not make it dirty."""
    root = git(folder, "rev-parse", "--show-toplevel")
    if not root:
        return None
    base = Path(root.decode().strip())
    commit = git(base, "rev-parse", "--verify", "-q", "HEAD")
    below = [os.path.relpath(path, base) for path in ignored if path.is_relative_to(base) and path != base]
    exclude = [f":(exclude,top,literal){path}" for path in below]
    changes = git(base, "status", "--porcelain", "--", ":(top)", *exclude)
    return Repository(base, commit.decode().strip() if commit else None, bool(changes))


def git(folder: Path, *arguments: str) -> bytes | None:
    """Output of a git command in `folder`, None when it fails or takes too long."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def environment_record() -> dict[str, Any]:
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
        "variables": {key: os.environ[key] for key in _VARIABLES if key in os.environ},
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        record["gpus"] = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return record


_VARIABLES = ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def write_record(
    folder: Path, launch: Launch, repository: Repository | None, parameters: Mapping[str, Any]
) -> None:
    """Write metadata.json and variant.json into `folder`."""
    metadata: dict[str, Any] = {}
    if repository is not None and repository.githash:
        metadata["githash"] = repository.githash + ("-dirty" if repository.dirty else "")
    if launch.script is not None:
        base = repository.root if repository else Path(launch.script).parent
        metadata["launcher"] = os.path.relpath(launch.script, base)
    metadata["environment"] = environment_record()
    metadata["launch"] = asdict(launch)
    write_atomic(folder / METADATA_NAME, to_json(metadata))
    write_atomic(folder / VARIANT_NAME, to_json(plain_parameters(parameters)))


def plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as plain data: numpy and torch scalars as numbers, other objects as their repr."""
    return {key: plain_hyper_param(value) for key, value in parameters.items()}


def to_json(content: Mapping[str, Any]) -> bytes:
    """Readable JSON, keys sorted."""
    return (json.dumps(content, indent=4, sort_keys=True, default=repr) + "\n").encode()


def read_launch(log_dir: Path) -> tuple[Launch, dict[str, Any]]:
    """The launch and the parameters of a run.

    Raises:
        LaunchError: the folder has no launch record of ours.
    """
    try:
        metadata = json.loads((log_dir / METADATA_NAME).read_bytes())
        parameters = json.loads((log_dir / VARIANT_NAME).read_bytes())
        return Launch(**metadata["launch"]), dict(parameters)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fault = "" if isinstance(error, FileNotFoundError) else f" ({error!r})"
        message = (
            f"{log_dir} has no launch record that wrap_experiment wrote{fault}. Other runs keep their "
            "code below code/ and go on with configure(run_id=…, resume='allow')"
        )
        raise LaunchError(message) from error
