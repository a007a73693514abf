"""Finder that calls a hook when a library has been imported.

It finds no modules itself. It asks the other finders and replaces `exec_module` of the loader that they
return, on that object only, until the module was executed. So importlib's answers stay the same.
"""

from __future__ import annotations

import sys
from _thread import get_ident

from ...contract.capture.parts import REPLACE, parse_parts

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

HOOKS = {  # module of a library → (part, our module; its function `hook` gets the library's module)
    "argparse": ("args", "argparse_parsers"),
    "tyro._cli": ("args", "tyro_configs"),
    "simple_parsing.parsing": ("args", "simple_parsing_parsers"),
    "click.core": ("args", "click_commands"),
    "typer._click.core": ("args", "click_commands"),
    "hydra.core.utils": ("args", "hydra_jobs"),
    "absl.flags._flagvalues": ("args", "absl_flags"),
    "docopt": ("args", "docopt_parsers"),
    "torch.utils.tensorboard.writer": ("tensorboard", "summary_writers"),
    "tensorboardX.writer": ("tensorboard", "summary_writers"),
    "wandb.sdk.wandb_run": ("wandb", "wandb_runs"),
    "wandb.sdk.wandb_init": ("wandb", "wandb_runs"),
    "stable_baselines3.common.logger": ("sb3", "sb3_models"),
    "stable_baselines3.common.base_class": ("sb3", "sb3_models"),
    "transformers.trainer_callback": ("transformers", "transformers_trainers"),
    "lightning.pytorch.trainer.connectors.logger_connector.logger_connector": (
        "lightning",
        "lightning_loggers",
    ),
    "pytorch_lightning.trainer.connectors.logger_connector.logger_connector": (
        "lightning",
        "lightning_loggers",
    ),
    "accelerate.accelerator": ("accelerate", "accelerate_trackers"),
    "rsl_rl.runners.on_policy_runner": ("rsl_rl", "rsl_rl_runners"),
    "mlflow.tracking.fluent": ("mlflow", "mlflow_runs"),
    "trackio": ("trackio", "wandb_likes"),
    "swanlab.data.sdk": ("swanlab", "wandb_likes"),
    "swanlab.sdk.cmd.init": ("swanlab", "wandb_likes"),
    "swanlab.sdk.internal.run": ("swanlab", "wandb_likes"),
    "gymnasium.envs.registration": ("gymnasium", "gymnasium_environments"),
    "gym.envs.registration": ("gymnasium", "gymnasium_environments"),
    "torch.serialization": ("torch_save", "torch_saves"),
}


class CaptureFinder:
    """The finder, which is the first of `sys.meta_path`.

    Args:
        hooks: the chosen entries of HOOKS.
        parts: the chosen parts.
    """

    def __init__(self, hooks: dict[str, tuple[str, str]], parts: frozenset[str]) -> None:
        self._hooks, self._parts = hooks, parts
        self._asking: set[tuple[int, str]] = (
            set()
        )  # (thread, module) in progress, as other finders may ask this one

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """The spec of the other finders; its loader calls the hook after the import."""
        replaces = name == "wandb" and "wandb" in self._parts
        if name not in self._hooks and not replaces:
            return None
        asking = (get_ident(), name)
        if asking in self._asking:
            return None
        self._asking.add(asking)
        try:
            spec = _ask_others(self, name, path, target)
        finally:
            self._asking.discard(asking)
        if replaces:
            from . import state, wandb_replacement, wrapping

            ours = wrapping.guarded(state.part("wandb"), wandb_replacement.spec_for, name, spec)
            return spec if ours is None else ours
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader, name)
        return spec

    def _watch(self, loader: Any, name: str) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            self.apply(name, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a built-in loader
            return

    def apply(self, name: str, module: ModuleType) -> None:
        """Call the hook of an imported module."""
        from . import state, wrapping

        part_name, hook_name = self._hooks[name]
        part = state.part(part_name)

        def apply() -> None:
            __import__(f"{__package__}.{hook_name}")
            sys.modules[f"{__package__}.{hook_name}"].hook(module, part)
            if part_name not in {"args", "gymnasium", "torch_save"}:
                from ...contract.capture.notes import LIBRARY, add_note

                add_note(LIBRARY, name.partition(".")[0] if part_name != "tensorboard" else part_name)

        wrapping.guarded(part, apply)


def _ask_others(ours: CaptureFinder, name: str, path: Sequence[str] | None, target: Any) -> Any:
    for finder in list(sys.meta_path):
        find = None if finder is ours else getattr(finder, "find_spec", None)
        spec = None if find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None


def install(text: str) -> None:
    """Watch the imports of the chosen parts' libraries; hook those that are imported already.

    Args:
        text: names of parts, see `parse_parts`.

    Raises:
        ValueError: a name is not that of a part.
    """
    parts = parse_parts(text)
    hooks = {name: (part, hook) for name, (part, hook) in HOOKS.items() if part in parts}
    finder = CaptureFinder(hooks, parts)
    sys.meta_path.insert(0, finder)
    if REPLACE in parts and "wandb" in parts:
        from ...contract.capture import wandb_distribution
        from . import state

        wandb_distribution.install(lambda: state.part("wandb").on)
    for name in hooks:
        module = sys.modules.get(name)
        if module is not None:
            finder.apply(name, module)
