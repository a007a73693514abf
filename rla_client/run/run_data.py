"""The checkpoints, custom data, archive of the open run.

Names and behaviour are RLA's: `save_checkpoint(model_dict, related_variable)` keeps the model as
`<name>_<time-step>.pt` and the related variables with the time-step as custom data; the archive is
written anew each time. The step waits for one copy of the tensors; the agent writes the file.
"""

from __future__ import annotations

import copy
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from rla_client.contract.errors import ArgumentError, NotConfiguredError, UntrustedCheckpointError
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    CODE,
    FOLDER_KINDS,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    TMP_DATA,
)
from rla_client.contract.spool.protocol import ALERT_MARK
from rla_client.run.current_logger import get_current, warn
from rla_client.run.parameters.parameter_changes import (
    CHANGE_KINDS,
    keep_changes,
    named_changes,
    parameter_changes,
)
from rla_client.run.parameters.parameter_file import (
    PARAMETER_KINDS,
    as_stored,
    parameter_file,
    write_parameters,
)
from rla_client.run.run import Run
from rla_client.run.state.archive import encode_archive, pack_arrays, write_archive
from rla_client.run.state.custom_data import open_own, register_custom_type, split_custom, unopened
from rla_client.run.state.random_state import restore_random_state
from rla_client.run.state.resume_state import keep_resume_state
from rla_client.stream import scope as scopes
from rla_client.stream.clock import TimeStepHolder, clock
from rla_client.stream.param_values import plain_hyper_param
from rla_client.stream.scope import Scope
from rla_client.stream.values import clean_text, whole_number

if TYPE_CHECKING:
    import tensorboardX

    from rla_client.checkpoint.saver import CheckpointSaver
    from rla_client.checkpoint.sharded_saver import ShardedSave
    from rla_client.contract.checkpoint.checkpoint_retention import Mode, Retention
    from rla_client.contract.checkpoint.sharded_status import ShardedStatus
    from rla_client.run.configure import RunSetup
    from rla_client.run.item import Item
    from rla_client.run.sharded_run import ShardedRun
    from rla_client.run.temporary_item import TemporaryItem

MAX_TITLE_CHARS, MAX_TEXT_CHARS = 200, 2000  # of an alert
CHECKPOINT_NAME = "checkpoint"
ARCHIVE_FRAME_BYTES = 1 << 20  # larger archives are durable when the system writes them out
TIME_STEP_DATA = "time-step"  # custom data: the clock at the last save_checkpoint
CustomDataMode: TypeAlias = Literal["append", "replace"]
# Custom data of runs that have ended, as long as somebody has the run, to open it once more.
_of_ended: weakref.WeakKeyDictionary[Run, dict[str, Any]] = weakref.WeakKeyDictionary()


def _copied(setup: RunSetup) -> RunSetup:
    found = copy.copy(setup)
    found.hyper_param = dict(setup.hyper_param)
    return found


class RunData:
    """The open (or loaded) run, its custom data and its checkpoints.

    Args:
        setup: what the run was opened with.
        own: a scope that it has for itself; without one, it takes the room that there is where it is opened.
    """

    def __init__(self, setup: RunSetup, own: Scope | None = None) -> None:
        self.setup = setup
        self.next_setup: RunSetup | None = None  # what the next run is to be, where it is not the setup
        self._own = self._scope = own
        self.is_held = False  # somebody has the handle of the run, and may write to it
        self.of_adapter = False  # nobody but an adapter asked for the run
        self.gave_way = 0  # when another run took its place; it ends when nobody has the handle
        self.item: Item | None = None
        self.run: Run | None = None
        self.disabled: TemporaryItem | None = None  # where files go while a run stores nothing
        self.run_file: dict[str, Any] = {}  # run.json of a loaded run
        self.custom_data: dict[str, Any] = {}
        self._unread: set[str] = set()  # keys of those that hold objects which nobody has vouched for
        self.max_to_keep: int | None = None
        self.resumed = False  # the open run continues where an earlier process left it,
        self.resumed_from: int | None = None  # at the checkpoint of this time-step; None: it has none
        self.last_record_fph_time: float | None = None
        self.resume_state: dict[str, Any] = {}  # of the checkpoint that the run was resumed from
        self._saved_before = 0  # order of the last save of an earlier process, or of a forked run
        self._var_prefix: str | None = None
        self._saver: CheckpointSaver | None = None
        self._sharded: ShardedRun | None = None
        self._keeps: list[tuple[str, tuple[Any, ...]]] = []

    @property
    def scope(self) -> Scope:
        """Of the open run; before that, the current one."""
        return self._scope or scopes.current()

    @property
    def clock(self) -> TimeStepHolder:
        """The run's."""
        return clock.of(self.scope)

    def enter(self) -> None:
        """What this thread logs without naming a run belongs to this one from here on."""
        if self._own is None:
            self._scope = scopes.room()
        scopes.take(self.scope)

    def setup_of_next(self) -> RunSetup:
        """What is said of the next run: the setup, or a copy of it where somebody holds the open run."""
        if self.next_setup is None and self.is_held and self.run is not None:
            self.next_setup = _copied(self.setup)
        return self.next_setup or self.setup

    def successor(self) -> RunData:
        """For a run beside this one or in its place, with a scope of its own.

        What was chosen for the next run holds for that one; and while none is open here, the clock and what
        else was said already.
        """
        following = RunData(_copied(self.next_setup or self.setup), Scope())
        following.max_to_keep, following._var_prefix = self.max_to_keep, self._var_prefix
        following._keeps = list(self._keeps)
        if self.run is None:
            following.custom_data = dict(self.custom_data)
            following.clock.take_over(self.clock)
        return following

    def let_go(self) -> Run | None:
        """Forget what was the open run's own; returns the run, which is still to be closed."""
        run, self.run = self.run, None
        self.resumed, self.resumed_from, self.resume_state, self._saved_before = False, None, {}, 0
        if run is not None:
            _of_ended[run] = self.custom_data
            self.take_custom_data({})
            self._close_saver()
            if self._sharded is not None:  # with its run, and not before: all ranks open it together
                self._sharded.saver.close()
                self._sharded = None
        return run

    def _close_saver(self) -> None:
        if self._saver is not None:
            self._saver.close()
            self._saver = None

    @property
    def last_time_step(self) -> int | float | None:
        """Of a loaded run: the time-step of its last row, where its run.json tells it."""
        step = self.run_file.get("time_step")
        return step if isinstance(step, (int, float)) else None

    # -- hyper-parameters ---------------------------------------------------------------------

    def add_hyper_param(self, values: Mapping[str, Any]) -> None:
        """See `ExpManager.add_hyper_param`."""
        setup, run, item = self.setup, self.run, self.item
        former = {name: setup.hyper_param[name] for name in values if name in setup.hyper_param}
        setup.hyper_param = {**setup.hyper_param, **values}
        if run is None or item is None:
            return
        if former:
            now = {name: values[name] for name in former}
            self.note_changes(
                parameter_changes(as_stored(former), now, setup.secrets()), self.clock.get_time()
            )
        name, content = parameter_file(setup.shown_parameters(), item)
        try:
            write_parameters(item, name, content)
        except OSError as error:
            warn(f"{name} was not written, the agent will: {error.strerror or error}")
        self.send_parameters(run, name, content)
        run.logger.secrets = setup.secrets()
        self.save_archive()

    def note_changes(self, changed: Mapping[str, tuple[Any, Any]], step: float | None) -> None:
        """Note in the open run that hyper-parameters have other values from a time-step on."""
        if changed and self.run is not None:
            self.run.logger.log(f"[PARAMETERS] {step} : {named_changes(changed)}", echo=False)
            self.keep_changes(changed, step)

    def keep_changes(self, changed: Mapping[str, tuple[Any, Any]], step: float | None) -> None:
        """Keep changes of hyper-parameters (name → former and new value) in the item."""
        run, item = self.run, self.item
        if run is None or item is None:
            return
        try:
            name, content = keep_changes(item, self.setup.shown_parameters(), changed, step)
        except OSError as error:
            warn(f"the changed hyper-parameters were not kept: {error.strerror or error}")
            return
        for kind in CHANGE_KINDS:
            run.file(kind, name, content)

    def send_parameters(self, run: Run, name: str, content: bytes) -> None:
        """Have the agent keep the parameter file, and what is in it with the run."""
        for kind in PARAMETER_KINDS:
            run.file(kind, name, content)
        self.mark_parameters(run)

    def mark_parameters(self, run: Run) -> None:
        """Tell the agent the hyper-parameters."""
        run.mark("hyper_param", plain_hyper_param(self.setup.shown_parameters()))

    def alert(self, title: str, text: str = "") -> None:
        """See `ExpManager.alert`."""
        title, text = clean_text(str(title)), clean_text(str(text))[:MAX_TEXT_CHARS]
        title = " ".join(title.split())[:MAX_TITLE_CHARS]
        warn(f"{title}: {text}" if text else title)
        if self.run is not None:
            shown = self.run.logger.shown
            step = self.clock.get_time()
            told = {"title": shown(title), "text": shown(text), "time_step": step, "timestamp": time.time()}
            self.run.mark(ALERT_MARK, told)

    # -- custom data --------------------------------------------------------------------------

    def take_custom_data(self, read: dict[str, Any]) -> None:
        """Take what was read of an earlier run's in place of all that is here."""
        self.custom_data = read
        self._unread = {key for key, value in read.items() if unopened(value) is not None}

    def is_unread(self, key: str) -> bool:
        """Whether there is an object under `key` that was not loaded."""
        return key in self._unread

    def take_custom_data_of(self, ended: Run, read: Callable[[], dict[str, Any]]) -> None:
        """Take over what a run had that this process has ended; `read` gives what its files hold.

        The agent writes these behind us: what ended a moment ago is not there yet, but in memory.
        """
        kept = _of_ended.get(ended)
        self.take_custom_data(read() if kept is None else kept)

    def add_custom_data(
        self, key: str, data: object, dtype: type = list, max_len: int = -1, mode: CustomDataMode = "append"
    ) -> None:
        """See `ExpManager.add_custom_data`."""
        if mode not in get_args(CustomDataMode):
            raise ArgumentError(f"add_custom_data takes mode 'append' or 'replace', got {mode!r}")
        grows = mode == "append" and isinstance(dtype, type) and issubclass(dtype, (list, deque))
        if not grows:
            self.custom_data[key] = data
            self._unread.discard(key)
            return
        held = self.custom_data.get(key)
        if isinstance(held, list) and issubclass(dtype, deque) and max_len > 0:
            held = deque(held, maxlen=max_len)  # archives of RLA are read with lists in place of deques
        elif not isinstance(held, (list, deque)) and issubclass(dtype, deque):
            if max_len < 1:
                raise ArgumentError(f"a deque needs max_len of at least 1, got {max_len}")
            held = deque(maxlen=max_len)
        elif not isinstance(held, (list, deque)):
            held = []
        self.custom_data[key] = held
        held.append(data)

    register_custom_type = staticmethod(register_custom_type)

    def get_custom_data(self, key: str, *, trust: bool = False) -> Any:  # noqa: ANN401
        """See `ExpManager.get_custom_data`."""
        value = self.custom_data.get(key)
        if trust and key in self._unread:
            value = self.custom_data[key] = open_own(value, None)
        left = unopened(value) if key in self._unread else None
        if left is not None:
            raise UntrustedCheckpointError(
                f"custom data {key!r} holds an object that was not loaded: {left.problem}. Loading it runs "
                "code which its file names; pass trust=True if you trust whoever wrote that file"
            )
        return value

    def print_custom_data(self, key: str, prefix: str = "") -> None:
        """See `ExpManager.print_custom_data`."""
        if key not in self.custom_data:
            raise ArgumentError(
                f"no custom data under {key!r}; there is: {', '.join(self.custom_data) or 'none'}"
            )
        import numpy as np  # noqa: PLC0415 - not at import of the package

        try:
            mean = float(np.mean(self.custom_data[key]))
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"custom data {key!r} has no mean: {error}") from error
        get_current().record(prefix + key, mean)

    def clear_custom_data(self, key: str) -> None:
        """See `ExpManager.clear_custom_data`."""
        if self.custom_data.pop(key, None) is None:
            warn(f"key {key} is not in custom_data")

    # -- checkpoints --------------------------------------------------------------------------

    def new_saver(
        self, max_to_keep: int | None = None, var_prefix: str | None = None, verbose: bool = True
    ) -> None:
        """See `ExpManager.new_saver`."""
        del verbose
        if self.setup.dl_framework != "tensorflow" and find_spec("torch") is None:
            warn("PyTorch is not installed, so no checkpoint can be saved: pip install 'rla-agent[torch]'")
        self.max_to_keep = None if max_to_keep is None else whole_number(max_to_keep, "max_to_keep")
        self._var_prefix = var_prefix
        self._close_saver()
        if self.run is not None and self.run.outbox is not None:
            self._open_saver()

    def keep_best(self, metric: str, mode: Mode = "min", k: int = 1) -> None:
        """See `ExpManager.keep_best`."""
        from rla_client.checkpoint.saver import best_rule  # noqa: PLC0415 - not at import of the package

        self._keep("keep_best", *best_rule(metric, mode, k))

    def keep_every(self, n: int) -> None:
        """See `ExpManager.keep_every`."""
        self._keep("keep_every", whole_number(n, "keep_every"))

    def _keep(self, rule: str, *arguments: object) -> None:
        self._keeps = [entry for entry in self._keeps if entry[0] != rule] + [(rule, arguments)]
        if self._saver is not None:
            getattr(self._saver, rule)(*arguments)

    def save_after(self, order: int) -> None:
        """Checkpoints from now on are newer than that of this order, wherever the clock was set to."""
        self._saved_before = max(self._saved_before, order)
        if self._saver is not None:
            self._saver.come_after(order)

    def _open_saver(self) -> CheckpointSaver | None:
        run, item = self.run, self.item
        if self._saver is not None or run is None or item is None or run.outbox is None:
            return self._saver
        from rla_client.checkpoint.saver import CheckpointSaver  # noqa: PLC0415 - not at import of the package

        identity = run.opening.run if run.opening else ""
        folder = Path(item.folder(CHECKPOINT))
        self._saver = CheckpointSaver(run.outbox, folder, self.max_to_keep, run=identity)
        self._saver.come_after(self._saved_before)
        for rule, arguments in self._keeps:
            getattr(self._saver, rule)(*arguments)
        return self._saver

    def save_checkpoint(
        self,
        model_dict: object = None,
        related_variable: Mapping[str, Any] | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
    ) -> None:
        """See `ExpManager.save_checkpoint`."""
        if self.run is None:
            raise NotConfiguredError("open a run first: exp_manager.log_files_gen()")
        from rla_client.contract.job.checkpoint_job import final_name  # noqa: PLC0415

        step = self.clock.get_time()
        final_name(checkpoint_name, int(step))  # refused before it is part of any path
        for key, value in (related_variable or {}).items():
            self.add_custom_data(key, value, mode="replace")
        self.custom_data[TIME_STEP_DATA] = step
        saver = self._open_saver()
        if saver is None and self.disabled is None:
            return
        kept = None
        if self.setup.dl_framework == "tensorflow":
            self._save_tensorflow(model_dict, checkpoint_name, int(step))
        elif self.disabled is not None:
            self.disabled.save_checkpoint(model_dict, checkpoint_name, int(step))
        elif saver is not None:
            self.run.logger.write_scalars()
            plain, parts = split_custom(self.custom_data, self._run_name)
            arrays = pack_arrays(parts)
            order = saver.next_order()
            written = keep_resume_state(self.run, plain, arrays, checkpoint_name, int(step), order)
            kept = plain, arrays, written
            row = self.run.logger.last_row
            metrics = dict(_metrics(row))
            saver.save(model_dict, checkpoint_name, int(step), metrics=metrics, order=order)
        self._save_archive(kept)

    def _save_tensorflow(self, model_dict: Any, name: str, step: int) -> None:  # noqa: ANN401
        if model_dict is None:
            warn("save_checkpoint() without a model_dict saves no variables of TensorFlow 2")
            return
        from rla_client.checkpoint.tensorflow import save_tensorflow  # noqa: PLC0415

        folder = self.folder_of(CHECKPOINT)
        save_tensorflow(model_dict, folder, name, step, self._var_prefix, max_to_keep=self.max_to_keep)

    def load_checkpoint(
        self,
        ckp_index: int | str | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
        model_dict: Mapping[str, Any] | None = None,
        *,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """See `ExpManager.load_checkpoint`."""
        try:
            index = None if ckp_index is None else int(ckp_index)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"ckp_index is a time-step, or None for the newest; got {ckp_index!r}"
            ) from None
        saver = self._open_saver()
        if self.setup.dl_framework == "tensorflow":
            from rla_client.checkpoint.tensorflow import load_tensorflow  # noqa: PLC0415

            folder = self.folder_of(CHECKPOINT)
            return load_tensorflow(folder, checkpoint_name, index, model_dict, self._var_prefix)
        if self.disabled is not None:
            return self.disabled.load_checkpoint(checkpoint_name, index, trust=trust)
        if saver is not None:
            found = saver.load(checkpoint_name, index, trust=trust)
            self.restore_random_state()
            return found
        from rla_client.checkpoint.listing import find_checkpoint  # noqa: PLC0415
        from rla_client.checkpoint.loading import load_file  # noqa: PLC0415

        step, path = find_checkpoint(Path(self.folder_of(CHECKPOINT)), checkpoint_name, index)
        return step, load_file(path, trust=trust)

    def save_sharded(
        self,
        state: Mapping[str, Any],
        name: str = CHECKPOINT_NAME,
        per_rank: object = None,
        metrics: Mapping[str, float] | None = None,
    ) -> ShardedSave:
        """See `ExpManager.save_sharded`."""
        if self.run is None:
            raise NotConfiguredError("open a run first: exp_manager.log_files_gen()")
        from rla_client.contract.checkpoint.sharded_files import folder_name  # noqa: PLC0415

        step = int(self.clock.get_time())
        folder_name(name, step)  # refused before it is part of any path
        sharded, saver = self._open_sharded(), self._open_saver()
        if saver is None or self.disabled is not None:
            return sharded.saver.save(state, name, step, per_rank=per_rank, order=time.time_ns())
        self.custom_data[TIME_STEP_DATA] = self.clock.get_time()
        self.run.logger.write_scalars()
        plain, parts = split_custom(self.custom_data, self._run_name)
        arrays = pack_arrays(parts)
        order = saver.next_order()
        written = keep_resume_state(self.run, plain, arrays, name, step, order)
        told = dict(_metrics(self.run.logger.last_row if metrics is None else metrics))
        sharded.saver.retention = saver.retention
        save = sharded.saver.save(state, name, step, per_rank=per_rank, order=order, metrics=told)
        self._save_archive((plain, arrays, written))
        return save

    def next_sharded(self) -> tuple[int, Retention]:
        """The order of a sharded save that comes now, and which checkpoints stay after it."""
        saver = self._open_saver()
        if saver is None:
            from rla_client.contract.checkpoint.checkpoint_retention import Retention  # noqa: PLC0415

            return time.time_ns(), Retention()
        return saver.next_order(), saver.retention

    def load_sharded(
        self,
        into: dict[str, Any],
        step: int | None = None,
        name: str = CHECKPOINT_NAME,
        *,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """See `ExpManager.load_sharded`."""
        if not isinstance(into, dict):
            raise ArgumentError("load_sharded takes a dict, which is filled in place")
        return self._open_sharded().load(into, self._sharded_folder(), name, step, trust=trust)

    def checkpoint_status(self, name: str | None = None) -> list[ShardedStatus]:
        """See `ExpManager.checkpoint_status`."""
        from rla_client.contract.checkpoint.sharded_status import sharded_status  # noqa: PLC0415

        folder = self._sharded_folder()
        if folder is None and self._sharded is not None and self._sharded.place is not None:
            folder = self._sharded.place.folder
        return [] if folder is None else sharded_status(folder, name)

    def _sharded_folder(self) -> Path | None:
        """The checkpoint folder of the run, where this process has it."""
        return None if self.item is None else Path(self.item.folder(CHECKPOINT))

    def _open_sharded(self) -> ShardedRun:
        """All ranks come here together, the first time."""
        if self._sharded is None:
            self._sharded = self._make_sharded()
        return self._sharded

    def find_sharded(self, name: str, step: int | None) -> tuple[int, Path]:
        """Time-step and folder of a whole checkpoint of rank 0's run; all ranks come here together.

        Raises:
            NoCheckpointError, FetchError: see `ExpManager.load_sharded`.
        """
        found, path = self._make_sharded().find(self._sharded_folder(), name, step)
        return found.step, path

    def _make_sharded(self) -> ShardedRun:
        """The sharded checkpoints of rank 0's open run; all ranks come here together."""
        from rla_client.run.sharded_run import ShardedRun  # noqa: PLC0415 - not at import of the package

        run = self.run
        outbox = None if run is None else run.outbox
        setup = None if self.item is None and outbox is None else self.setup
        made = ShardedRun(self._sharded_folder(), None if run is None else run.opening, setup)
        if made.place is not None and made.place.beside and outbox is not None:
            _ = (
                outbox.stream_folder
            )  # begins the stream: the agent knows of this part of the run without a row
        return made

    def restore_random_state(self) -> None:
        """Random generators as they were at the checkpoint that the run was resumed from."""
        if "random" in self.resume_state:
            restore_random_state(self.resume_state["random"])

    # -- where --------------------------------------------------------------------------------

    @property
    def writer(self) -> tensorboardX.SummaryWriter | None:
        """See `logger.get_tbx_writer`; None where no run is open or it has no TensorBoard."""
        if self.run is None or "tensorboard" not in self.run.logger.sinks:
            return None
        from rla_client.run.record.summary_writer import tbx_writer  # noqa: PLC0415 - tensorboardX is slow to import

        return tbx_writer(self.run.logger)

    @property
    def log_dir(self) -> str | None:
        """Rows and text; ends with a slash, None before `log_files_gen`."""
        return self.folder(LOG)

    @property
    def results_dir(self) -> str | None:
        """Figures and other results."""
        return self.folder(OTHER_RESULTS)

    @property
    def code_dir(self) -> str | None:
        """The code of the run."""
        return self.folder(CODE)

    @property
    def checkpoint_dir(self) -> str | None:
        """Checkpoints."""
        return self.folder(CHECKPOINT)

    @property
    def hyperparameter_dir(self) -> str | None:
        """Hyper-parameters."""
        return self.folder(HYPARAMETER)

    hyparameter_dir = hyperparameter_dir  # the historic spelling

    @property
    def tmp_data_dir(self) -> str | None:
        """Data that may be thrown away."""
        return self.folder(TMP_DATA)

    @property
    def pkl_file(self) -> str | None:
        """Archive of this manager's data (JSON; the name is RLA's); of a run of RLA's, its pickle."""
        place = self.place()
        if place is None:
            return None
        older = os.path.splitext(place.archive_file)[0] + ".pkl"
        return (
            older if not os.path.exists(place.archive_file) and os.path.exists(older) else place.archive_file
        )

    @property
    def pkl_dir(self) -> str | None:
        """Folder of `pkl_file`."""
        return None if self.pkl_file is None else os.path.dirname(self.pkl_file)

    # -- the archive --------------------------------------------------------------------------

    def folder_of(self, kind: str) -> str:
        """See `ExpManager.folder_of`."""
        folder = self.folder(kind)
        if folder is None:
            raise NotConfiguredError("open a run first: exp_manager.log_files_gen()")
        return folder

    def place(self) -> Item | None:
        """The run's item; the temporary one of a run that stores nothing; None before a run is open."""
        return self.disabled.item() if self.disabled is not None else self.item

    def folder(self, kind: str) -> str | None:
        """Folder of the item of a kind; None before a run is open."""
        place = self.place()
        return None if place is None else place.folder(kind)

    def archive_content(self) -> dict[str, Any]:
        """See `ExpManager.archive_content`."""
        item = self.item
        if item is None:
            return {}
        secrets = self.setup.secrets()
        return {
            "hyper_param": plain_hyper_param(secrets.parameters(self.setup.hyper_param)),
            "hyper_param_record": self.setup.hyper_param_record,
            "record_date": item.opened.isoformat(),
            "info": item.index.info,
            "task_table_name": item.table,
            "data_root": item.root,
            "index": item.index.path,
            "log_name_format_version": self.setup.log_name_format_version,
            "dl_framework": self.setup.dl_framework,
            "private_config": self.setup.config_to_keep(secrets),
            "dirs": {kind: item.folder(kind) for kind in FOLDER_KINDS},
            "saved_by": self._run_name,
        }

    @property
    def _run_name(self) -> str:
        """What the agent knows the open run by."""
        return self.run.opening.run if self.run is not None and self.run.opening else ""

    def save_archive(self) -> None:
        """See `ExpManager.save_archive`."""
        self._save_archive(None)

    def _save_archive(self, kept: tuple[Any, bytes, Path | None] | None) -> None:
        """See `save_archive`; `kept`: what was made of the custom data a moment ago, and its arrays' file."""
        item, run = self.item, self.run
        if item is None:
            return
        if kept is None:
            plain, parts = split_custom(self.custom_data, self._run_name)
            kept = plain, pack_arrays(parts), None
        plain, arrays, written = kept
        text = encode_archive(self.archive_content(), plain)
        try:
            write_archive(item.archive_file, text, arrays, written)
        except OSError as error:
            warn(f"the archive {item.archive_file} was not written: {error.strerror or error}")
        if run is not None and len(text) < ARCHIVE_FRAME_BYTES:
            run.file(ARCHIVE_TESTER, os.path.basename(item.archive_file), text)

    serialize_object_and_save = save_archive


def _metrics(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row; an integer that no float holds is none."""
    for key, value in row.items():
        if isinstance(value, int | float):
            with suppress(OverflowError):
                yield key, float(value)
