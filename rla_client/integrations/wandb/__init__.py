"""A module with wandb's interface: `import rla_client.integrations.wandb as wandb`.

A script that logs to wandb needs only this line changed. `wandb.log` makes rows, `config` hyper-parameters,
`Image` and `Video` files in the run's results, `Artifact` and `save` copies of files, `alert` a message
through the agent's channels. The project is the table; the index tracks the run's name, the seed, the
learning rate and overrides on the command line. Nothing leaves the machine except by replication. Unsupported
names warn once and do nothing.

Differences to wandb: a step before the last one becomes a row of its own instead of being dropped; values of
`config` may be changed; `define_metric(…, step_metric="global_step")` makes that metric the time-step of the
rows.
"""

from __future__ import annotations

import atexit
import enum
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rla_client.contract.errors import RlaError, extra

with extra("tensorboard", "rla_client.integrations.wandb"):
    from rla_client.integrations.wandb import forwarded_events, run_object, values
from rla_client.adapter import join_or_open, open_for_adapter, script_name, telling_parameters
from rla_client.contract.capture import wandb_distribution
from rla_client.integrations.wandb.artifact import Artifact
from rla_client.integrations.wandb.earlier_run import config_of, earlier_run
from rla_client.integrations.wandb.id_turns import turn_of_id
from rla_client.integrations.wandb.living_run import join_living_run, living_run
from rla_client.integrations.wandb.run_config import parameters_of
from rla_client.integrations.wandb.run_object import Run
from rla_client.integrations.wandb.sdk.lib.runid import generate_id
from rla_client.integrations.wandb.sdk.wandb_settings import Settings
from rla_client.integrations.wandb.unknown_names import Unknown, tell_unknown
from rla_client.integrations.wandb.values import Error, UsageError
from rla_client.manager import exp_manager
from rla_client.media.row_media import safe_name
from rla_client.run.current_logger import info, warn
from rla_client.run.run_mode import MODE_VARIABLE
from rla_client.stream import run_scope as scopes
from rla_client.stream.clock import time_step_holder

__all__ = ["Artifact", "Error", "Run", "UsageError", "__version__", "init"]

__version__ = wandb_distribution.VERSION
_MODULES = frozenset({"apis", "data_types", "env", "errors", "plot", "sdk", "util", "wandb_run"})
_RESUME = {"allow": "allow", "auto": "allow", True: "allow", "must": "must", "never": "never"}
_WITHOUT_MEANING = frozenset({
    "dir", "magic", "anonymous", "allow_val_change", "resume_from", "fork_from", "save_code", "settings",
    "force",
})  # fmt: skip
AlertLevel = enum.Enum("AlertLevel", {"INFO": "INFO", "WARN": "WARN", "ERROR": "ERROR"})  # without effect
_OF_THE_RUN = frozenset({
    "config", "summary", "log", "define_metric", "watch", "unwatch", "save", "alert", "log_artifact",
    "log_model", "log_code", "restore",
})  # fmt: skip


@scopes.opening()
def init(  # noqa: C901, PLR0913, PLR0915, PLR0917 - wandb's signature
    entity: str | None = None, project: str | None = None, dir: Any = None, id: str | None = None,  # noqa: A002
    name: str | None = None, notes: str | None = None, tags: Sequence[str] | str | None = None,
    config: Any = None, *, resume: Any = None, mode: str | None = None, group: str | None = None,
    job_type: str | None = None, sync_tensorboard: bool = False, monitor_gym: bool = False,
    reinit: Any = None, **further: Any,
) -> Run:  # fmt: skip
    """Open a run in the table `project` (default: the script's name), or use the open run.

    `name` is tracked in the run's index; `tags` and `notes` are those of `rla tag` and `rla note`; `config`
    (a mapping, Namespace, dataclass, YAML file), `group` and `job_type` are hyper-parameters.

    With `resume` (allow, must, auto, True), the newest run of this `id` continues in an item of its own, with
    its configuration and after its last step. If another process of this machine still writes the run of this
    `id` (as with `mode="shared"`), this process joins it like `rla_client.join`, in the role
    `settings.x_label`. `mode="disabled"` stores nothing; `reinit` finishes the open run first.

    With `sync_tensorboard`, events of torch's and tensorboardX's SummaryWriters are part of the run, and
    `log` without a step uses their step; with `monitor_gym`, so are films of gymnasium's RecordVideo. wandb's
    variables ($WANDB_PROJECT, _NAME, _RUN_ID, _RESUME, _MODE, _TAGS, _NOTES, _RUN_GROUP, _JOB_TYPE) are the
    defaults. Other arguments of wandb have no effect.

    Raises:
        UsageError: the run cannot be opened, for example because the data root is not writable or
            `resume="must"` finds no run of this id.
    """
    del dir
    former, place = run_object.current(), scopes.current()
    if place.is_anothers():
        former = None  # of another thread, such as another trial
    beside = reinit == "create_new" and former is not None
    if former is not None and former.pid == os.getpid() and exp_manager.run is not None and not beside:
        if reinit in {None, False, "return_previous", "default"}:
            former.config.update(config)
            return former
        former.finish()
    sync_tensorboard = sync_tensorboard or bool(further.pop("tensorboard", False))  # its former name
    parameters = parameters_of(config)
    kept = {*(further.pop("config_include_keys", None) or parameters)}
    kept -= {*(further.pop("config_exclude_keys", None) or ())}
    parameters = {key: value for key, value in parameters.items() if key in kept}
    for unknown in further.keys() - _WITHOUT_MEANING:
        tell_unknown(f"init({unknown}=…)")
    environment = os.environ.get
    name = name or environment("WANDB_NAME")
    group, job_type = group or environment("WANDB_RUN_GROUP"), job_type or environment("WANDB_JOB_TYPE")
    about = {"name": name, "group": group, "job_type": job_type}
    named = {key if key not in parameters else f"run_{key}": value for key, value in about.items() if value}
    settings = _plain_settings(further.get("settings"))
    _set_mode(mode or settings.get("mode"))
    table = safe_name(project or environment("WANDB_PROJECT") or script_name())
    known = id or environment("WANDB_RUN_ID") or None
    resumes = _RESUME.get(environment("WANDB_RESUME") if resume is None else resume)
    with turn_of_id(known):
        living = None if beside else living_run(table, known)
        if living is not None:
            opened = join_living_run(
                living, name, project or table, {**about, "id": known, "entity": entity}, settings
            )
            dict.update(opened.config, parameters)
            return opened
        try:
            earlier = (
                earlier_run(table, known, must=resumes == "must") if resumes in {"allow", "must"} else None
            )
            if earlier is not None:
                parameters = {**config_of(earlier.hyper_param), **parameters}
                named["resumed_from"] = earlier.item.index.path
            tracked = [
                *telling_parameters(parameters),
                *(key for key in ("name", "run_name") if name and key in named),
            ]
            opens = open_for_adapter if beside or place.is_anothers() else partial(join_or_open, joins=False)
            # a given id continues in a new item; without one, RLA_RUN_ID and RLA_RESUME apply, or else the
            # run gets an id like wandb's, by which other processes may join it
            own_id = known or ("" if environment("RLA_RUN_ID") else generate_id())
            own: dict[str, Any] = {"run_id": own_id, "resume": "never"} if own_id else {}
            handle = opens(table, {**parameters, **named}, tracked, **own)
        except (RlaError, OSError) as error:
            raise UsageError(str(error)) from error
    if earlier is not None and isinstance(step := earlier.run_file.get("time_step"), int | float):
        time_step_holder.put(step)
    tags = [tags] if isinstance(tags, str) else tags
    tags = tags or [tag for tag in (environment("WANDB_TAGS") or "").split(",") if tag]
    options: dict[str, Any] = {**about, "entity": entity, "tags": tags}
    options |= {"synced": sync_tensorboard, "filmed": monitor_gym}
    options |= {"notes": notes or environment("WANDB_NOTES"), "earlier": earlier and earlier.item}
    opened = Run(name, project or table, options, handle)
    run_object.current.put(opened, scopes.current())
    dict.update(opened.config, parameters)
    opened.note()
    if settings.get("x_primary") is False and not opened.disabled:
        warn(
            f"wandb.init: no other process of this machine writes the run {known!r} of {table!r} below "
            f"{exp_manager.data_root} now, which this one should join: it has a run of its own"
        )
    if beside:
        scopes.return_to(place)  # as in wandb, calls without a run belong to the former one
    atexit.register(opened.leave)
    if sync_tensorboard:
        forwarded_events.forward_tensorboard(lambda: bool((run := run_object.current()) and run.synced))
    if monitor_gym:
        forwarded_events.forward_films(lambda: bool((run := run_object.current()) and run.filmed))
    return opened


def _plain_settings(settings: Any) -> dict[str, Any]:
    found = settings if isinstance(settings, Mapping) else getattr(settings, "__dict__", {})
    return {str(key): value for key, value in found.items()}


def _set_mode(mode: str | None) -> None:
    mode = mode or os.environ.get("WANDB_MODE")
    if os.environ.get("WANDB_DISABLED", "").lower() in {"true", "1"}:
        mode = "disabled"
    if mode == "disabled" and not os.environ.get(MODE_VARIABLE):
        os.environ[MODE_VARIABLE], run_object.disables = "disabled", True


def _required() -> Run:
    run = run_object.current()
    if run is None:
        raise UsageError("You must call wandb.init() before this")
    return run


def _finish(exit_code: Any = None, quiet: bool | None = None) -> None:
    run = run_object.current()
    if run is not None:
        run.finish(exit_code, quiet)


def _nothing(*_: Any, **__: Any) -> bool:
    return True


def _says(say: Callable[[str], None]) -> Any:
    return lambda text="", *_, **__: say(text)


def _sweeps(*_: Any, **__: Any) -> Any:
    """`wandb.sweep` and `wandb.agent`.

    Raises:
        UsageError: always, as a run would not get the sweep's parameters.
    """
    raise UsageError(
        "wandb.sweep and wandb.agent are not supported: put `command`, `parameters`, `method` and `metric` "
        "into a file, and `rla sweep FILE` starts the script with each setting (docs/how-to/sweeps.md)"
    )


_KINDS = ("Audio", "Histogram", "Html", "Image", "Object3D", "Table", "Video")
_NAMES: dict[str, Any] = {
    **dict.fromkeys(("sweep", "agent", "controller"), _sweeps),
    **{kind: getattr(values, kind) for kind in _KINDS},
    **dict.fromkeys(("login", "require", "setup", "ensure_configured"), _nothing),
    **dict.fromkeys(("finish", "join"), _finish),
    "termlog": _says(info),
    **dict.fromkeys(("termwarn", "termerror"), _says(warn)),
    "CommError": Error,
    "Settings": Settings,
}

wandb_distribution.install(lambda: sys.modules.get("wandb") is sys.modules[__name__])


def __getattr__(name: str) -> Any:
    if name == "run":
        return run_object.current()
    if name in _NAMES:
        return _NAMES[name]
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_required(), name) if name in _OF_THE_RUN else Unknown(name)
