"""Where a value goes: a cell of the row, a file of the results, or TensorBoard's events."""

from __future__ import annotations

import datetime as dt
import importlib
import os
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from rla_client import logger
from rla_client.contract.layout import OTHER_RESULTS
from rla_client.integrations.wandb import data_types as kinds
from rla_client.integrations.wandb.data_types import is_frame, pixels, put, safe_name, to_array
from rla_client.manager import exp_manager
from rla_client.run.tensorboard import scalar_rows, tbx_writer
from rla_client.stream.clock import time_step_holder
from rla_client.stream.values import summary_scalars, to_plain

MAX_LISTED = 32  # elements of an array that stays a list; of a larger one a histogram is kept, as in wandb
MAX_FRAME_FILE = 1 << 20  # larger files are written here, smaller ones by the agent
PLAIN_TYPES = frozenset({float, int, bool, str})


def row_value(value: Any) -> Any:
    """A value as a row takes it, small arrays as lists; None for what does not go into a row."""
    if type(value) in PLAIN_TYPES:
        return value
    if isinstance(value, bool | int | float | str | bytes | dt.date | dt.timedelta):
        return to_plain(value)
    if isinstance(value, list | tuple):
        plain = [row_value(one) for one in value]
        kept = [one is not None or other is None for one, other in zip(plain, value, strict=True)]
        return plain if value and all(kept) else None
    lenient = isinstance(value, kinds.Unknown | kinds.Lenient)
    if lenient or not hasattr(value, "shape") or is_frame(value):
        return None
    cells = to_array(value)
    if cells.size > MAX_LISTED and cells.dtype.kind in "biuf":
        return None  # a histogram
    return to_plain(cells.reshape(-1)[0] if cells.size == 1 else cells.tolist())


def show(key: str, value: Any, step: float) -> None:
    """Keep what is not a number: a file of the results, or a part of TensorBoard's events."""
    from rla_client.media.recorders import ImgRecorder, MatplotlibRecorder  # noqa: PLC0415 - imports numpy

    ours = isinstance(value, kinds.Media)
    path, data = PurePath(safe_name(key)), value.data if ours else value
    name = str(path.with_name(f"{step}-{path.name}"))  # the clock may be ahead of this step
    if isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            show(f"{key}_{number}", entry, step)
    elif isinstance(value, kinds.Unknown):
        return
    elif ours and isinstance(data, str | os.PathLike):
        _keep(f"{name}{PurePath(data).suffix}", Path(data))
    elif not isinstance(value, kinds.Lenient) and hasattr(data, "savefig"):
        figure = None if hasattr(data, "gcf") else data  # pyplot itself
        MatplotlibRecorder.save(name, figure, add_timestamp=False)
    elif isinstance(value, kinds.Image):
        ImgRecorder.save(name, pixels(data), add_timestamp=False)
    elif isinstance(value, kinds.Video) and not hasattr(data, "read"):
        _save_video(name, value)
    elif (content := _file_content(value)) is not None:
        _keep(f"{name}{content[0]}", content[1])
    else:
        to_tensorboard(key, value, int(step))


def _file_content(value: Any) -> tuple[str, bytes] | None:
    """Ending and content of what becomes a file as it is."""
    if isinstance(value, kinds.Table) or is_frame(value):
        return ".csv", (value if isinstance(value, kinds.Table) else kinds.Table(dataframe=value)).csv()
    if isinstance(value, kinds.Video):
        return f".{value.format}", value.data.read()
    if isinstance(value, kinds.Html):
        page = value.data.read() if hasattr(value.data, "read") else str(value.data)
        is_file = page.endswith(".html") and os.path.isfile(page)
        return ".html", Path(page).read_bytes() if is_file else page.encode()
    if type(value).__module__.startswith("plotly"):
        return ".html", str(value.to_html(include_plotlyjs="cdn")).encode()
    return None


def _keep(name: str, content: Path | bytes) -> None:
    """Keep a file among the run's results."""
    if exp_manager.run is None or exp_manager.run.outbox is None:
        return
    if isinstance(content, bytes) and len(content) <= MAX_FRAME_FILE:
        exp_manager.run.file(OTHER_RESULTS, name, content)
    else:
        put(Path(exp_manager.folder_of(OTHER_RESULTS), name), content)


def _save_video(name: str, video: Any) -> None:
    from rla_client.media.recorders import VideoRecorder  # noqa: PLC0415 - imports numpy

    frames = to_array(video.data)
    batches = frames if frames.ndim == 5 else [frames]  # noqa: PLR2004 - (batch, T, C, H, W)
    for number, frames_of_one in enumerate(batches):
        which = f"{name}_{number}" if len(batches) > 1 else name
        ending = "gif" if video.format == "gif" else "mp4"
        shown = frames_of_one.transpose(0, 2, 3, 1)  # wandb's frames are always (T, C, H, W)
        VideoRecorder.save(f"{which}.{ending}", shown, video.fps, cover=True, add_timestamp=False)


def to_tensorboard(key: str, value: Any, step: int) -> None:
    """Send sound, or a histogram of an array's finite values."""
    current = logger.get_current()
    if "tensorboard" not in current.sinks:
        return
    writer, counted = tbx_writer(current), isinstance(value, kinds.Histogram)
    if isinstance(value, kinds.Audio):
        sound = to_array(value.data)
        sound = sound / np.iinfo(sound.dtype).max if sound.dtype.kind == "i" else sound
        writer.add_audio(key, sound, step, sample_rate=value.sample_rate)
    elif counted and value.np_histogram is not None:
        counts, edges = (to_array(part).astype(float) for part in value.np_histogram)
        middles = (edges[:-1] + edges[1:]) / 2  # values count as in the middle of their bin
        sums = (counts.sum(), counts @ middles, counts @ middles**2)
        writer.add_histogram_raw(key, edges[0], edges[-1], *sums, edges[1:].tolist(), counts.tolist(), step)
    elif counted or hasattr(value, "shape"):
        finite = to_array(value.sequence if counted else value).astype(float).reshape(-1)
        finite = finite[np.isfinite(finite)]
        if finite.size:
            writer.add_histogram(key, finite, step, **({"bins": value.num_bins} if counted else {}))
    else:
        kinds.tell_unknown(f"log of {type(value).__name__}")


def watcher(name: str, parameter: Any, what: str | None, every: int) -> Any:
    """A hook of a tensor: each `every` gradients, histograms of what is watched."""
    calls = 0

    def look(gradient: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % every == 0:
            for group, values in (("gradients", gradient), ("parameters", parameter)):
                if what in {group, "all"}:
                    to_tensorboard(f"{group}{name}", values, int(time_step_holder.get_time()))

    return look


# -- what other libraries write by themselves -------------------------------------------------------


def forward_tensorboard(is_open: Callable[[], bool]) -> None:
    """From now on, events of torch's and tensorboardX's file writers are part of the open run, too."""
    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        _forward(module, "FileWriter", "add_event", lambda original: (original, _send_event), is_open)


def forward_films(is_open: Callable[[], bool]) -> None:
    """From now on, what gymnasium's RecordVideo films is part of the open run, too."""
    _forward("gymnasium.wrappers", "RecordVideo", "stop_recording", lambda stop: (_send_film, stop), is_open)


def _forward(module: str, owner: str, method: str, calls: Any, is_open: Callable[[], bool]) -> None:
    """Have a method, where there is one, make several calls with its arguments while a run is open."""
    try:
        kind = getattr(importlib.import_module(module), owner)
        original = getattr(kind, method)
    except (ImportError, AttributeError):
        return
    if hasattr(original, "rla_forwards"):
        return

    def forward(*args: Any, **kwargs: Any) -> None:
        for call in calls(original) if is_open() else (original,):
            call(*args, **kwargs)

    forward.rla_forwards = True  # type: ignore[attr-defined]
    setattr(kind, method, forward)


def _send_event(_: Any, event: Any, *__: Any, **___: Any) -> None:
    current = logger.get_current()
    current.event(_shown(event, current).SerializeToString(), event.wall_time, event.step)
    rows = scalar_rows(current)
    if rows is not None and event.HasField("summary"):
        for tag, value in summary_scalars(event.summary):
            rows.add(tag, value, event.step, event.wall_time)


def _shown(event: Any, current: Any) -> Any:
    """The event with the run's secrets hidden in its texts."""
    values = event.summary.value if event.HasField("summary") else ()
    if not any(value.metadata.plugin_data.plugin_name == "text" for value in values):
        return event
    copy = type(event).FromString(event.SerializeToString())
    for value in copy.summary.value:
        for number, text in enumerate(value.tensor.string_val):
            value.tensor.string_val[number] = current.shown(text.decode("utf-8", "replace")).encode()
    return copy


def _send_film(recorder: Any) -> None:
    from rla_client.media.recorders import VideoRecorder  # noqa: PLC0415 - imports numpy

    if recorder.recorded_frames:
        fps = float(getattr(recorder, "frames_per_sec", None) or 30)
        name = f"videos/{safe_name(recorder._video_name)}.mp4"  # noqa: SLF001 - gymnasium's name of the file
        VideoRecorder.save(name, list(recorder.recorded_frames), fps=fps, cover=True)
