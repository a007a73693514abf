"""Hooks of SummaryWriters, torch's or tensorboardX's.

Scalars are captured at `add_scalar`, as doubles; everything else at the file writer, as the written event.
"""

from __future__ import annotations

import os
import weakref

from . import recorder, seen_parameters, state
from .origin import caller
from .state import CapturePart, thread
from .wrapping import from_adapted_library, observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

MAX_EVENT_BYTES = 1 << 20  # larger events are only counted
_NUMBERS = frozenset({float, int})


class Writers:
    """The program's open writers, with the prefixes of their tags."""

    def __init__(self) -> None:
        self.open: weakref.WeakSet[Any] = weakref.WeakSet()
        self.folders: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self.first = ""  # folder of the run's first writer
        self._last: weakref.ref[Any] | None = None
        self._last_prefix = ""

    def add(self, writer: Any, folder: str) -> None:
        """Note a new writer."""
        real = os.path.abspath(folder)
        session = recorder.opened()
        if not self.open and self.first and real != self.first:
            if session is not None:
                session.end_run()
            self.first = ""
        if not self.first:
            self.first = real
            seen_parameters.sources[:] = [one for one in seen_parameters.sources if one.origin != "log_dir"]
            seen_parameters.add(seen_parameters.FILES, "log_dir", {"log_dir": folder})
        self.open.add(writer)
        self.folders[writer] = real

    def close(self, writer: Any) -> None:
        """Note that a writer was closed."""
        self.open.discard(writer)
        session = recorder.opened()
        if session is not None:
            session.flush()
            if not self.open:  # the program may change them for the next run
                session.read_parameters()

    def prefix(self, writer: Any) -> str:
        """The prefix of a writer's tags: the path of its folder relative to that of the first writer."""
        if self._last is not None and self._last() is writer:
            return self._last_prefix
        folder = self.folders.get(writer, self.first)
        prefix = ""
        if folder != self.first:
            parts = [part for part in os.path.relpath(folder, self.first).split(os.sep) if part != os.pardir]
            prefix = "/".join(parts or [os.path.basename(folder)]) + "/"
        self._last, self._last_prefix = weakref.ref(writer), prefix
        return prefix


writers = Writers()


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the writers of a module."""
    kind = module.SummaryWriter
    replace(kind, "__init__", observed(part, _made))
    replace(kind, "close", observed(part, lambda _, writer: writers.close(writer)))
    replace(kind, "flush", observed(part, lambda _, __: _flush()))
    replace(kind, "add_scalar", observed(part, _scalar_seer(part)))
    replace(kind, "add_scalars", observed(part, _scalars_seer(part)))
    replace(kind, "add_hparams", observed(part, _hparams_seer(part)))
    replace(module.FileWriter, "add_event", _event_maker(part))


def _made(_: object, writer: Any, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    if not from_adapted_library(caller(1, *_PASSED)) and getattr(writer, "_write_to_disk", True):
        writers.add(writer, str(getattr(writer, "log_dir", None) or getattr(writer, "logdir", "")))


def _flush() -> None:
    session = recorder.opened()
    if session is not None:
        session.flush()


def _scalar_seer(part: CapturePart) -> Any:
    def see(
        _: object,
        writer: Any,
        tag: Any,
        scalar_value: Any,
        global_step: Any = None,
        walltime: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        del args, kwargs
        if state.adapted and from_adapted_library(caller(1, *_PASSED)):
            return
        if type(scalar_value) not in _NUMBERS:
            scalar_value = _number(scalar_value, thread.event)
        recorder.scalar(part, writers.prefix(writer) + tag, scalar_value, global_step, walltime)

    return see


def _number(value: Any, event: Any) -> Any:
    """A number as a double; for a tensor on a device, the written value, to avoid a second transfer."""
    device = getattr(value, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        return None if event is None else event.summary.value[0].simple_value
    if hasattr(value, "item"):
        value = value.item()
        return float(value) if isinstance(value, bool) else value  # as in the event file
    if isinstance(value, str):  # a name of a caffe2 blob
        return None if event is None else event.summary.value[0].simple_value
    return float(value)


def _scalars_seer(part: CapturePart) -> Any:
    def see(
        _: object,
        writer: Any,
        main_tag: str,
        tag_scalar_dict: Any,
        global_step: Any = None,
        walltime: Any = None,
    ) -> None:
        if from_adapted_library(caller(1, *_PASSED)):
            return
        prefix = f"{writers.prefix(writer)}{main_tag}/"
        for tag, value in tag_scalar_dict.items():
            recorder.scalar(part, f"{prefix}{tag}", _number(value, None), global_step, walltime)

    return see


def _hparams_seer(part: CapturePart) -> Any:
    def see(_: object, writer: Any, hparam_dict: Any, metric_dict: Any, *args: Any, **kwargs: Any) -> None:
        if from_adapted_library(caller(1, *_PASSED)):
            return
        step = kwargs.get("global_step")
        if step is None and args and isinstance(args[-1], int):
            step = args[-1]
        seen_parameters.add(
            seen_parameters.HPARAMS, "add_hparams", dict(hparam_dict), tuple(map(str, hparam_dict))
        )
        prefix = writers.prefix(writer)
        for tag, value in metric_dict.items():
            recorder.scalar(part, f"{prefix}{tag}", _number(value, None), step, None)
        session = recorder.opened()
        if session is not None:
            session.read_parameters()

    return see


def _event_maker(part: CapturePart) -> Any:
    def see(_: object, file_writer: Any, event: Any, *args: Any, **kwargs: Any) -> None:
        del file_writer, args, kwargs
        if not (state.adapted and from_adapted_library(caller(1, *_PASSED))):
            _see_event(part, event)

    def make(original: Any) -> Any:
        watched = observed(part, see)(original)

        def add_event(self: Any, event: Any, *args: Any, **kwargs: Any) -> Any:
            if not thread.inside:
                return watched(self, event, *args, **kwargs)
            thread.event = event  # for the hook of the enclosing `add_scalar`
            return original(self, event, *args, **kwargs)

        return add_event

    return make


def _see_event(part: CapturePart, event: Any) -> None:
    what = event.WhichOneof("what")
    if what == "summary" and event.summary.value:
        kind, size = _kind(event.summary.value[0]), event.ByteSize()
        if size > MAX_EVENT_BYTES:
            part.skip(kind, size)
            return
        if kind == "values":
            for value in event.summary.value:
                recorder.scalar(part, value.tag, value.simple_value, event.step, event.wall_time)
            return
        part.count(kind)
        recorder.event(part, event)
        if kind == "text":
            _see_text(event.summary.value[0])
    elif what in {"graph_def", "meta_graph_def"}:
        part.skip("graph", event.ByteSize())


def _kind(value: Any) -> str:
    found = value.WhichOneof("value")
    plugin = value.metadata.plugin_data.plugin_name
    if found == "tensor":
        return str(plugin or "tensor").removesuffix("s")
    return {"histo": "histogram", "simple_value": "values"}.get(found, found or "event")


def _see_text(value: Any) -> None:
    """Take hyper-parameters from a Markdown table, which CleanRL's scripts write."""
    text = b"".join(value.tensor.string_val).decode("utf-8", "replace")
    if text.lstrip().lower().startswith("|param"):
        seen_parameters.add(seen_parameters.FILES, "tensorboard", seen_parameters.MarkdownParameters(text))


_PASSED = (
    f"tensorboard{os.sep}writer.py", f"tensorboardX{os.sep}writer.py",
    f"capture{os.sep}hooks{os.sep}summary_writers.py", f"capture{os.sep}hooks{os.sep}wrapping.py",
)  # fmt: skip
