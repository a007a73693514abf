"""A real tensorboardX `SummaryWriter` whose events travel through the agent, not to a file of its own.

tensorboardX builds each event as ever; only its `FileWriter`, with a thread, a queue and a file,
is replaced by one that hands the serialised event on. What tensorboardX spreads over several
files lands where TensorBoard reads it just as well:

- `add_scalars(main, {…})`: tags `main/<name>` of this run, not one run folder per name;
- `add_hparams`: in this run, not in a run folder of its own;
- `add_embedding`: the projector's files come to `logdir` by temp name and rename;
- `add_video` (GIF through Pillow) and `add_audio` (WAV) need neither moviepy nor soundfile.

A step that is not given is the logger's time-step. `flush` and `close` do nothing: the events have
left already, and the writer goes on working after them. Import this module inside functions:
tensorboardX imports torch where it is installed.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import threading
import time
import wave
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.summary import hparams
from tensorboardX.utils import _prepare_video, convert_to_NTCHW
from tensorboardX.writer import FileWriter
from tensorboardX.x2num import make_np

from rla_client import forks
from rla_client.errors import ArgumentError
from rla_client.readers import summary_scalars
from rla_client.storage import write_atomic
from rla_client.values import to_plain

EmitEvent: TypeAlias = Callable[[bytes, float, int], object]
EmitFile: TypeAlias = Callable[[str, bytes], object]

MAX_KEPT_SCALARS = 100_000  # a name, for export_scalars_to_json; tensorboardX keeps all for ever
_LOG = logging.getLogger("rla_client")
PROJECTOR_CONFIG = "projector_config.pbtxt"

_PCM16_BYTES = 2
_PCM16_MAX = 32767


class AgentSummaryWriter(SummaryWriter):  # type: ignore[misc] # tensorboardX is untyped
    """`SummaryWriter` of tensorboardX with another way out; every `add_*` works as documented there.

    Args:
        emit: takes the serialised Event, its wall time (Unix seconds) and its step.
        logdir: the folder of this run's event files; the projector's files are written there.
        get_step: the step of what is added without one.
        emit_file: takes the path below `logdir` and the content of an extra file; by default it is
            written at once, atomically.
        shown: gives hyper-parameters as they may be written.
    """

    def __init__(
        self,
        emit: EmitEvent,
        logdir: str | os.PathLike[str],
        get_step: Callable[[], float],
        *,
        emit_file: EmitFile | None = None,
        shown: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        self._shown = shown or dict
        self._writer = _EmittingWriter(emit, os.fspath(logdir), get_step)
        self._emit_file = emit_file or self._write_file
        self._files_lock = threading.Lock()
        self._config: bytes | None = None
        forks.register(self)
        super().__init__(os.fspath(logdir))

    def after_fork_in_child(self) -> None:
        """Free the lock."""
        forks.renew(self._files_lock)

    def _get_file_writer(self) -> _EmittingWriter:
        self.file_writer = self._writer
        self.all_writers = {self._writer.get_logdir(): self._writer}
        return self._writer

    def flush(self) -> None:
        """Do nothing; `logger.flush()` waits until the agent has written the events."""

    def close(self) -> None:
        """Do nothing; the writer belongs to the run."""

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """See tensorboardX; takes any number (bfloat16, jax, tensorflow, Decimal too)."""
        super().add_scalar(tag, _number(scalar_value), *args, **kwargs)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add one scalar per entry under the tag `main_tag/<name>`."""
        walltime = time.time() if walltime is None else walltime
        for name, value in tag_scalar_dict.items():
            number = _number(value)
            super().add_scalar(f"{main_tag}/{name}", number, global_step, walltime)
            kept = self.scalar_dict.setdefault(os.path.join(self.logdir, main_tag, name), [])
            kept.append([walltime, global_step, float(number)])
            del kept[:-MAX_KEPT_SCALARS]

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Add hyper-parameters and metrics for the HPARAMS tab, and the metrics as scalars.

        They belong to this run, so `name`, tensorboardX's name for a run of their own, has no use.
        Values may be numbers of any kind, bools or text; others are shown as text.
        """
        del name
        plain = {key: _param(value) for key, value in self._shown(hparam_dict).items()}
        for summary in hparams(plain, dict(metric_dict)):
            self._writer.add_summary(summary, global_step)
        for key, value in metric_dict.items():
            self.add_scalar(key, value, global_step)

    def add_histogram(self, tag: str, values: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """See tensorboardX; takes bfloat16 and sparse tensors too."""
        super().add_histogram(tag, _array(values), *args, **kwargs)

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,  # noqa: ANN401
        global_step: int | None = None,
        fps: float | None = 4,
        walltime: float | None = None,
        dataformats: str | None = "NTCHW",
    ) -> None:
        """Add a video as an animated GIF; uint8 in 0…255 or float in 0…1, by default (N, T, C, H, W)."""
        frames = _prepare_video(convert_to_NTCHW(make_np(vid_tensor), input_format=dataformats))
        image = _gif(_as_uint8(frames), fps or 4)
        self._writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=image)]), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,  # noqa: ANN401
        global_step: int | None = None,
        sample_rate: int | None = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add sound as 16-bit WAV; float in -1…1 (clipped), shape (frames,) or (frames, 1 or 2 channels)."""
        audio = _wav(make_np(snd_tensor), int(sample_rate or 44100))
        self._writer.add_summary(Summary(value=[Summary.Value(tag=tag, audio=audio)]), global_step, walltime)

    def add_embedding(
        self,
        mat: Any,  # noqa: ANN401
        metadata: Any = None,  # noqa: ANN401
        label_img: Any = None,  # noqa: ANN401
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Any = None,  # noqa: ANN401
    ) -> None:
        """Add projector data: files below `logdir`, listed in `projector_config.pbtxt` there."""
        step = self._writer.step_or_default(global_step)
        try:
            with self._files_lock, tempfile.TemporaryDirectory(prefix="rla-embedding-") as folder:
                Path(folder, PROJECTOR_CONFIG).write_bytes(self._projector_config())
                target = _FolderWriter(folder, self._writer)
                target.add_embedding(_array(mat), metadata, label_img, step, tag, metadata_header)
                self._send_files(Path(folder))
        except OSError as error:  # the disk is no reason to end training
            _LOG.warning("embedding %r at step %s was not written: %s", tag, step, error)

    def _projector_config(self) -> bytes:
        if self._config is None:
            config = Path(self.logdir, PROJECTOR_CONFIG)
            self._config = config.read_bytes() if config.exists() else b""
        return self._config

    def _send_files(self, folder: Path) -> None:
        """Hand on all files, the list of them last, so that nothing is listed before it is there."""
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

    def __init__(self, emit: EmitEvent, logdir: str, get_step: Callable[[], float]) -> None:
        # FileWriter's own __init__ would open a file and start a thread.
        self.emit = emit
        self.get_step = get_step
        self._logdir = logdir
        self._default_metadata: dict[str, Any] = {}

    def get_logdir(self) -> str:
        return self._logdir

    def add_event(self, event: Event, step: Any = None, walltime: float | None = None) -> None:  # noqa: ANN401
        if walltime is None:
            walltime = self._default_metadata.get("walltime")
        event.wall_time = time.time() if walltime is None else float(walltime)
        if step is None:
            step = self._default_metadata.get("global_step")
        event.step = self.step_or_default(step)
        self.emit(event.SerializeToString(), event.wall_time, event.step)

    def step_or_default(self, step: Any) -> int:  # noqa: ANN401 - an int of any library
        return int(self.get_step() if step is None else step)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def reopen(self) -> None:
        pass


# -- Summary objects ---------------------------------------------------------------------------


def event_of_summary(summary: Any, wall_time: float, step: int) -> bytes:  # noqa: ANN401
    """Wrap a Summary (an object of any protobuf build, or its bytes) into a serialised Event.

    Raises:
        ArgumentError: it is no Summary.
    """
    event = Event(wall_time=wall_time, step=step, summary=_summary(summary))
    data: bytes = event.SerializeToString()
    return data


def scalars_of_summary(summary: Any) -> list[tuple[str, float]]:  # noqa: ANN401
    """Tag and value of each scalar in a Summary (an object, or its bytes).

    Raises:
        ArgumentError: it is no Summary.
    """
    return list(summary_scalars(_summary(summary)))


def table_summary(content: Mapping[Any, Any], name: str) -> bytes:
    """A serialised Summary that TensorBoard shows as a table of text: one row for each entry."""
    from tensorboardX.proto.tensor_pb2 import TensorProto  # noqa: PLC0415 - rarely needed
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto  # noqa: PLC0415

    cells = [str(cell).encode("utf-8", "backslashreplace") for pair in content.items() for cell in pair]
    sizes = [TensorShapeProto.Dim(size=size) for size in (len(content), 2)]
    tensor = TensorProto(dtype="DT_STRING", string_val=cells, tensor_shape=TensorShapeProto(dim=sizes))
    text = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    data: bytes = Summary(value=[Summary.Value(tag=name, metadata=text, tensor=tensor)]).SerializeToString()
    return data


def _summary(summary: Any) -> Summary:  # noqa: ANN401
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415

    if hasattr(summary, "numpy"):
        summary = summary.numpy()  # tensorflow's eager summaries are text tensors
    data = summary.SerializeToString() if hasattr(summary, "SerializeToString") else summary
    if not isinstance(data, bytes):
        raise ArgumentError(f"not a Summary object or its bytes: {type(summary).__name__}")
    try:
        return Summary.FromString(data)
    except DecodeError as error:
        raise ArgumentError(f"these bytes are no Summary: {error}") from error


# -- values and media --------------------------------------------------------------------------


def _number(value: Any) -> Any:  # noqa: ANN401
    """A Python number where there is one; else the value, for tensorboardX to judge."""
    plain = to_plain(value)
    return plain if isinstance(plain, int | float) else value


def _param(value: Any) -> bool | int | float | str:  # noqa: ANN401
    plain = to_plain(value)
    return plain if isinstance(plain, bool | int | float | str) else str(plain)


def _array(values: Any) -> Any:  # noqa: ANN401
    """An array that tensorboardX can read: dense, and of a type that numpy has."""
    if hasattr(values, "detach"):
        values = values.detach()
        if str(getattr(values, "layout", "")).startswith("torch.sparse"):
            values = values.to_dense()
        if "float8" in str(values.dtype) or "bfloat16" in str(values.dtype):
            values = values.float()
    return values


def _as_uint8(frames: Any) -> Any:  # noqa: ANN401 - float array in 0…1, shape (T, H, W, C)
    if frames.dtype == np.uint8:
        return frames
    return (frames.clip(0, 1) * 255).astype(np.uint8)


def _gif(frames: Any, fps: float) -> Summary.Image:  # noqa: ANN401 - uint8 array, shape (T, H, W, C)
    from PIL import Image  # noqa: PLC0415

    count, height, width, channels = frames.shape
    if not count:
        raise ArgumentError("a video needs one frame at least")
    pictures = [Image.fromarray(frame[..., 0] if channels == 1 else frame) for frame in frames]
    with io.BytesIO() as target:
        pictures[0].save(
            target, "GIF", save_all=True, append_images=pictures[1:], duration=1000 / fps, loop=0
        )
        encoded = target.getvalue()
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=encoded)


def _wav(sound: Any, sample_rate: int) -> Summary.Audio:  # noqa: ANN401
    if sound.ndim == 1:
        sound = sound[:, None]
    if sound.ndim != 2 or sound.shape[1] not in {1, 2}:  # noqa: PLR2004
        raise ArgumentError(
            f"sound has shape (frames,) or (frames, channels) with 1 or 2 channels, not {sound.shape}"
        )
    frames, channels = sound.shape
    samples = np.rint(np.nan_to_num(sound).clip(-1, 1) * _PCM16_MAX).astype("<i2")
    with io.BytesIO() as target:
        with wave.open(target, "wb") as out:
            out.setnchannels(channels)
            out.setsampwidth(_PCM16_BYTES)
            out.setframerate(sample_rate)
            out.writeframes(samples.tobytes())
        encoded = target.getvalue()
    return Summary.Audio(
        sample_rate=sample_rate,
        num_channels=channels,
        length_frames=frames,
        encoded_audio_string=encoded,
        content_type="audio/wav",
    )
