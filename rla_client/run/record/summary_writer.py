"""tensorboardX's `SummaryWriter` on top of the agent.

tensorboardX builds each event; only its `FileWriter`, with a thread, a queue and a file, is replaced by one
that sends the serialised event to the agent. Data that tensorboardX spreads over several files are stored
where TensorBoard finds them, too: `add_scalars(main, {…})` becomes tags `main/<name>` of this run,
`add_hparams` stays in this run, the projector's files of `add_embedding` are put into `logdir` by temp name
and rename, `add_video` (GIF through Pillow) and `add_audio` (WAV) need neither moviepy nor soundfile.

A missing step is the logger's time-step. Events are sent at the call; scalars also become rows
(`scalar_rows`). `flush` and `close` write the pending row, and the writer can be used after them. Import this
module inside functions: tensorboardX imports torch where it is installed.
"""

from __future__ import annotations

import logging
import math
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, SupportsInt, TypeAlias

from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.process.fork_hooks import at_fork, renew_lock
from rla_client.run.record.event_encoding import (
    FLOAT,
    clipped_images,
    dense_array,
    encoded_gif,
    encoded_wav,
    plain_number,
    plain_param,
    scalar_head,
    varint,
)
from rla_client.run.record.run_logger import Logger
from rla_client.run.record.scalar_rows import ScalarRows, scalar_rows
from rla_client.run.record.tf_summary import parse_summary

with extra("tensorboard", "SummaryWriter"):
    import numpy as np
    from tensorboardX import SummaryWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import _clean_tag, hparams
    from tensorboardX.utils import _prepare_video, convert_to_NTCHW
    from tensorboardX.writer import FileWriter
    from tensorboardX.x2num import make_np
EmitEvent: TypeAlias = Callable[[bytes, float, int], object]
EmitFile: TypeAlias = Callable[[str, bytes], object]
MAX_KEPT_SCALARS = 100_000  # a name, for export_scalars_to_json; tensorboardX keeps all for ever
MAX_KNOWN_TAGS = 100_000  # of scalars, whose part of an event is kept
PROJECTOR_CONFIG = "projector_config.pbtxt"
_LOG = logging.getLogger("rla_client")
_NUMPY_NUMBERS = frozenset({np.float32, np.float64, np.int32, np.int64})
_DOUBLE = struct.Struct("<d")
_UINT64_MAX = (1 << 64) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1  # an event holds no further steps


def tbx_writer(current: Logger) -> AgentSummaryWriter:
    """The logger's tensorboardX `SummaryWriter`, made at the first call.

    Raises:
        ArgumentError: `tensorboard` is not among the outputs.
    """
    if "tensorboard" not in current.sinks:
        raise ArgumentError(
            "get_tbx_writer() needs tensorboard among the outputs; see LOG_USED in rla_config.yaml"
        )
    if current.tbx_writer is None:
        current.tbx_writer = AgentSummaryWriter(**writer_arguments(current))
    writer: AgentSummaryWriter = current.tbx_writer
    return writer


def writer_arguments(current: Logger) -> dict[str, Any]:
    """Arguments of an `AgentSummaryWriter` for the run of `current`; all writers of a run share its rows."""
    return {
        "emit": current.event,
        "logdir": os.path.join(current.folder or ".", "tb", "events"),
        "get_step": current.clock.get_time,
        "follow": current.clock.follow,
        "beside": current.write_beside,
        "shown": lambda params: current.secrets.parameters(params) if current.secrets else params,
        "rows": scalar_rows(current),
        "parameters": current.take_parameters,
    }


def send_graph(current: Logger, source: object, *args: object, **kwargs: object) -> None:
    """Send the graph of a tensorflow session; for anything else use tensorboardX's `add_graph`.

    Raises:
        ArgumentError: `tensorboard` is not among the outputs.
    """
    writer = tbx_writer(current)
    graph = getattr(source, "graph", source)
    if not hasattr(graph, "as_graph_def"):
        writer.add_graph(source, *args, **kwargs)
        return
    now, step = time.time(), int(current.clock.get_time())
    event = Event(wall_time=now, step=step, graph_def=graph.as_graph_def().SerializeToString())
    current.event(event.SerializeToString(), now, step)


class AgentSummaryWriter(SummaryWriter):  # type: ignore[misc] # tensorboardX is untyped
    """`SummaryWriter` of tensorboardX that sends events to the agent; every `add_*` works as documented.

    Args:
        emit: takes the serialised Event, its wall time (Unix seconds) and its step.
        logdir: the folder of this run's event files; the projector's files are written there.
        get_step: the default step.
        emit_file: takes the path below `logdir` and the content of an extra file; by default it is
            written at once, atomically.
        shown: returns hyper-parameters without secrets.
        rows: takes each scalar as well.
        parameters: takes the hyper-parameters of `add_hparams` for the run.
        prefix: of each tag.
        follow: called with step and tag of each value.
        beside: takes the hyper-parameters and metrics of further `add_hparams`, with a step.
        seen: gets each event but those of scalars.
    """

    clean_tag = staticmethod(_clean_tag)  # of scalars; tensorboardX's writes spaces and the like as `_`

    def __init__(  # noqa: PLR0913 - who makes one says where each thing goes
        self,
        emit: EmitEvent,
        logdir: str | os.PathLike[str],
        get_step: Callable[[], float],
        *,
        emit_file: EmitFile | None = None,
        shown: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        rows: ScalarRows | None = None,
        parameters: Callable[[Mapping[str, Any]], object] | None = None,
        prefix: str = "",
        follow: Callable[[float, str], object] = lambda _, __: None,
        beside: Callable[[Mapping[str, Any], Mapping[str, Any], int | None], object] | None = None,
        seen: Callable[[Event], object] = lambda _: None,
    ) -> None:
        self._shown = shown or dict
        self._beside = beside
        self._hparams: dict[str, Any] | None = None  # of the first `add_hparams`
        self._rows = rows
        self._parameters = parameters
        self._tags: dict[str, tuple[str, bytes]] = {}
        self._step_field = (0, b"\x10\x00")  # a step, and the part of an event that says it
        self._writer = _EmittingWriter(emit, os.fspath(logdir), get_step, prefix, follow, seen)
        self._emit_file = emit_file or self._write_file
        self._files_lock = threading.Lock()
        self._config: bytes | None = None
        at_fork(self)
        super().__init__(os.fspath(logdir))

    def after_fork_in_child(self) -> None:
        """Free the lock."""
        renew_lock(self._files_lock)

    def _get_file_writer(self) -> _EmittingWriter:
        self.file_writer = self._writer
        self.all_writers = {self._writer.get_logdir(): self._writer}
        return self._writer

    def flush(self) -> None:
        """Write the scalars of the last step; `logger.flush()` waits until all is in its files."""
        if self._rows is not None:
            self._rows.write()

    def close(self) -> None:
        """Flush; the writer belongs to the run and can still be used."""
        self.flush()

    def add_scalar(  # tensorboardX's signature
        self,
        tag: str,
        scalar_value: object,
        global_step: int | None = None,
        walltime: float | None = None,
        display_name: str | bool | None = "",
        summary_description: str | bool | None = "",
        **further: object,
    ) -> None:
        """See tensorboardX; takes any number (bfloat16, jax, tensorflow, Decimal too).

        The scalars of one step also make a row of progress.csv.
        """
        del further
        if display_name is True or summary_description is True:  # torch's `new_style` and `double_precision`
            display_name = summary_description = ""
        number: Any = scalar_value
        if type(number) is not float and type(number) is not int:
            number = number.item() if type(number) in _NUMPY_NUMBERS else plain_number(number)
            number = int(number) if isinstance(number, bool) else number
        writer = self._writer
        defaults: object = writer._default_metadata  # noqa: SLF001 - a call more costs 3 us where no cache has it
        if type(global_step) is int and 0 <= global_step <= _INT64_MAX and walltime is None and not defaults:
            step, walltime = global_step, time.time()
        else:
            step, walltime = writer.time_of(global_step, walltime)
        if not isinstance(number, int | float):
            super().add_scalar(tag, number, step, walltime, display_name, summary_description)
            return
        shown, head = self._tags.get(tag) or self._know(tag)
        if display_name or summary_description:
            super().add_scalar(tag, number, step, walltime, display_name, summary_description)
        else:
            known, field = self._step_field
            if step != known:
                field = b"\x10" + varint(step & _UINT64_MAX)
                self._step_field = step, field
            try:
                packed = FLOAT.pack(number)
            except (OverflowError, struct.error):  # beyond float32
                packed = FLOAT.pack(math.inf if number > 0 else -math.inf)
            writer.emit(b"\x09" + _DOUBLE.pack(walltime) + field + head + packed, walltime, step)
        if self._rows is not None:
            self._rows.add(shown, number, step, walltime)
        else:
            writer.follow(step, shown)

    def _know(self, tag: str) -> tuple[str, bytes]:
        """A tag as it is written, with the part of an event that has it."""
        if len(self._tags) >= MAX_KNOWN_TAGS:
            self._tags.clear()
        shown = self._writer.prefix + self.clean_tag(tag)
        known = self._tags[tag] = shown, scalar_head(shown)
        return known

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add one scalar per entry under the tag `main_tag/<name>`."""
        global_step, walltime = self._writer.time_of(global_step, walltime)
        for name, value in tag_scalar_dict.items():
            number = plain_number(value)
            self.add_scalar(f"{main_tag}/{name}", number, global_step, walltime)
            kept = self.scalar_dict.setdefault(os.path.join(self.logdir, main_tag, name), [])
            with suppress(OverflowError):
                number = float(number)
            kept.append([walltime, global_step, number])
            del kept[:-MAX_KEPT_SCALARS]

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        *names: object,
        global_step: int | None = None,
        **further: object,
    ) -> None:
        """Add hyper-parameters and metrics for the HPARAMS tab; both become the run's own.

        The hyper-parameters join those of the run, the metrics become scalars. A later call with other
        hyper-parameters makes a run beside this one, as a loop over settings means it: in the same table,
        with them in its index and the metrics as its row. Names for such runs (tensorboardX's `name`, torch's
        `run_name`) and torch's `hparam_domain_discrete` have no use. Values may be numbers of any kind, bools
        or text; others are shown as text.
        """
        if global_step is None and names and isinstance(names[-1], int):
            global_step = names[-1]
        del names, further
        plain = {key: plain_param(value) for key, value in hparam_dict.items()}
        if self._hparams is None:
            self._hparams = plain
        elif self._beside is not None and repr(plain) != repr(self._hparams):
            self._beside(hparam_dict, metric_dict, global_step)
            return
        self.name_hparams(hparam_dict, metric_dict, global_step)
        for key, value in metric_dict.items():
            self.add_scalar(key, value, global_step)

    def name_hparams(
        self, hparam_dict: Mapping[str, Any], metrics: Iterable[str], global_step: int | None = None
    ) -> None:
        """`add_hparams` with the names of metrics whose scalars the script writes itself."""
        if self._parameters is not None:
            self._parameters(hparam_dict)
        plain = {key: plain_param(value) for key, value in self._shown(hparam_dict).items()}
        for summary in hparams(plain, dict.fromkeys(metrics, 0.0)):
            self._writer.add_summary(summary, global_step)

    def add_histogram(self, tag: str, values: object, *args: object, **kwargs: object) -> None:
        """See tensorboardX; takes bfloat16 and sparse tensors too."""
        super().add_histogram(tag, dense_array(values), *args, **kwargs)

    def add_image(self, tag: str, img_tensor: object, *args: object, **kwargs: object) -> None:
        """See tensorboardX; values beyond 0…1 are clipped, as torch does, and do not wrap around."""
        super().add_image(tag, clipped_images(img_tensor), *args, **kwargs)

    def add_images(self, tag: str, img_tensor: object, *args: object, **kwargs: object) -> None:
        """See `add_image`."""
        super().add_images(tag, clipped_images(img_tensor), *args, **kwargs)

    def add_image_with_boxes(
        self, tag: str, img_tensor: object, box_tensor: object, *args: object, **kwargs: object
    ) -> None:
        """See `add_image`."""
        super().add_image_with_boxes(tag, clipped_images(img_tensor), box_tensor, *args, **kwargs)

    def add_video(
        self,
        tag: str,
        vid_tensor: object,
        global_step: int | None = None,
        fps: float | None = 4,
        walltime: float | None = None,
        dataformats: str | None = "NTCHW",
    ) -> None:
        """Add a video as an animated GIF; uint8 in 0…255 or float in 0…1, by default (N, T, C, H, W)."""
        frames = _prepare_video(convert_to_NTCHW(make_np(vid_tensor), input_format=dataformats))
        if frames.dtype != np.uint8:
            frames = (frames.clip(0, 1) * 255).astype(np.uint8)
        image = encoded_gif(frames, fps or 4)
        self._writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=image)]), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: object,
        global_step: int | None = None,
        sample_rate: int | None = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add sound as 16-bit WAV; float in -1…1 (clipped), shape (frames,) or (frames, 1 or 2 channels)."""
        audio = encoded_wav(make_np(snd_tensor), int(sample_rate or 44100))
        self._writer.add_summary(Summary(value=[Summary.Value(tag=tag, audio=audio)]), global_step, walltime)

    def add_embedding(
        self,
        mat: object,
        metadata: object = None,
        label_img: object = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: object = None,
    ) -> None:
        """Add projector data: files below `logdir`, listed in `projector_config.pbtxt` there."""
        step = self._writer.step_or_default(global_step)
        try:
            with self._files_lock, tempfile.TemporaryDirectory(prefix="rla-embedding-") as folder:
                Path(folder, PROJECTOR_CONFIG).write_bytes(self._projector_config())
                target = _FolderWriter(folder, self._writer)
                target.add_embedding(dense_array(mat), metadata, label_img, step, tag, metadata_header)
                self._send_files(Path(folder))
        except OSError as error:  # the disk is no reason to end training
            _LOG.warning("embedding %r at step %s was not written: %s", tag, step, error)

    def _projector_config(self) -> bytes:
        if self._config is None:
            config = Path(self.logdir, PROJECTOR_CONFIG)
            self._config = config.read_bytes() if config.exists() else b""
        return self._config

    def _send_files(self, folder: Path) -> None:
        """Send all files, the list of them last, so that it never names a missing one."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != PROJECTOR_CONFIG:
                self._emit_file(path.relative_to(folder).as_posix(), path.read_bytes())
        self._config = (folder / PROJECTOR_CONFIG).read_bytes()
        self._emit_file(PROJECTOR_CONFIG, self._config)

    def _write_file(self, name: str, content: bytes) -> None:
        path = Path(self.logdir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content, durable=False)  # the loop does not wait for fsync


class _FolderWriter(SummaryWriter):  # type: ignore[misc] # tensorboardX is untyped
    """Lets tensorboardX write the projector's files to a folder of ours."""

    def __init__(self, folder: str, writer: _EmittingWriter) -> None:
        self._writer = _EmittingWriter(writer.emit, folder, writer.get_step)
        super().__init__(folder)

    def _get_file_writer(self) -> _EmittingWriter:
        return self._writer


class _EmittingWriter(FileWriter):  # type: ignore[misc] # tensorboardX is untyped
    """tensorboardX's FileWriter without a file: no thread, no queue; events leave at the call."""

    def __init__(
        self,
        emit: EmitEvent,
        logdir: str,
        get_step: Callable[[], float],
        prefix: str = "",
        follow: Callable[[float, str], object] = lambda _, __: None,
        seen: Callable[[Event], object] = lambda _: None,
    ) -> None:
        # FileWriter's own __init__ would open a file and start a thread.
        self.emit = emit
        self.prefix = prefix
        self.get_step, self.follow, self.seen = get_step, follow, seen
        self._logdir = logdir
        self._default_metadata: dict[str, Any] = {}

    def get_logdir(self) -> str:
        return self._logdir

    def add_summary(
        self,
        summary: Any,  # noqa: ANN401 - a protobuf message of any build
        global_step: SupportsInt | None = None,
        walltime: float | None = None,
    ) -> None:
        if not isinstance(summary, Summary):  # of another protobuf build, as torch's
            summary = parse_summary(summary)
        if self.prefix:
            for value in summary.value:
                value.tag = self.prefix + value.tag
        self.add_event(Event(summary=summary), global_step, walltime)

    def add_event(self, event: Event, step: SupportsInt | None = None, walltime: float | None = None) -> None:
        event.step, event.wall_time = self.time_of(step, walltime)
        self.follow(event.step, event.summary.value[0].tag if event.summary.value else "")
        self.emit(event.SerializeToString(), event.wall_time, event.step)
        self.seen(event)

    def time_of(self, step: SupportsInt | None, walltime: float | None) -> tuple[int, float]:
        """Step and wall time: the given ones, else those of `use_metadata`, else the clock's and now."""
        if walltime is None:
            walltime = self._default_metadata.get("walltime")
        if step is None:
            step = self._default_metadata.get("global_step")
        return self.step_or_default(step), time.time() if walltime is None else float(walltime)

    def step_or_default(self, step: SupportsInt | None) -> int:
        return max(_INT64_MIN, min(_INT64_MAX, int(self.get_step() if step is None else step)))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def reopen(self) -> None:
        pass
