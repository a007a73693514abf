"""Mirror of wandb's run in the captured run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rla_client.capture.hooks.state import CapturePart
    from rla_client.integrations.wandb.run_object import Run


class OpensMirrors(Protocol):
    """The part of the session that `WandbMirror` uses."""

    names: dict[str, str]
    wandb_metrics: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]

    def rows(self) -> object | None:
        """Rows of the open run, opened now if there is none; None: nothing is recorded."""

    def mirror(self, run: Any) -> Run:  # noqa: ANN401 - wandb's
        """Create a mirror of wandb's run in the open run."""

    def is_mirrored(self, mirror: Run) -> bool:
        """Whether a mirror belongs to the open run."""

    def end_run(self) -> None:
        """End the run."""

    def read_parameters(self) -> None:
        """Send changed hyper-parameters to the run."""


class WandbMirror:
    """Repeats the calls of wandb's run on a run of our wandb module.

    Args:
        session: opens the runs.
    """

    def __init__(self, session: OpensMirrors) -> None:
        self._session = session
        self._run: Any = None  # wandb's
        self._mirror: Run | None = None
        self._defined = 0
        self._finished = False

    def log(self, part: CapturePart, run: Any, data: dict[str, Any], step: int, commit: bool) -> None:  # noqa: ANN401 - wandb's
        """Log into the mirror of a run.

        Args:
            part: counts the values.
            run: wandb's run.
            data: argument of its `log`.
            step: its step before the call.
            commit: whether the row is complete.
        """
        mirror = self._mirror_of(run)
        if mirror is None:
            return
        values = {key: _converted(value, part) for key, value in data.items()}
        mirror.log({key: value for key, value in values.items() if value is not None}, step, commit)
        part.count("values", len(values))

    def begin(self, run: Any) -> None:  # noqa: ANN401 - wandb's
        """Follow a run of wandb. If the previous one has ended, its captured run ends too."""
        if self._run is run:
            return
        if self._finished or getattr(self._run, "_is_finished", False):
            self._session.end_run()
        self._finished = False
        self._run, self._mirror, self._defined = run, None, 0

    def _mirror_of(self, run: Any) -> Run | None:  # noqa: ANN401 - wandb's
        self.begin(run)
        self._session.names["project"] = run.project or ""
        if self._session.rows() is None:
            return None
        if self._mirror is None or not self._session.is_mirrored(self._mirror):
            self._mirror = self._session.mirror(run)
            self._defined = 0
        self.define(self._session.wandb_metrics)
        return self._mirror

    def define(self, metrics: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]) -> None:
        """Define the metrics that are not defined yet.

        Args:
            metrics: (wandb's run, args, kwargs) of each call of `define_metric`.
        """
        if self._mirror is None:
            return
        for run, args, kwargs in metrics[self._defined :]:
            if run is self._run:
                self._mirror.define_metric(*args, **kwargs)
        self._defined = len(metrics)

    def finish(self, run: Any) -> None:  # noqa: ANN401 - wandb's
        """Copy the script's entries of the summary; the captured run ends later, see `begin`."""
        if run is not self._run or self._mirror is None:
            return
        self._finished = True
        theirs = dict(run.summary)
        ours = self._mirror.summary
        further = {
            key: value
            for key, value in theirs.items()
            if not key.startswith("_") and key not in ours and isinstance(value, bool | int | float | str)
        }
        self._mirror.summary.update(further)
        self._session.read_parameters()
        self._mirror.leave()


def _converted(value: Any, part: CapturePart) -> Any:  # noqa: ANN401 - of any kind
    """A value of wandb's types as one of ours; None for an unsupported type."""
    kind = type(value)
    if isinstance(value, dict):
        return {key: one for key, each in value.items() if (one := _converted(each, part)) is not None}
    if isinstance(value, list | tuple) and value and _is_wandbs(type(value[0])):
        return [one for each in value if (one := _converted(each, part)) is not None]
    if not _is_wandbs(kind):
        return value
    name = kind.__name__
    convert = _CONVERSIONS.get(name)
    if convert is None:
        part.skip(name.lower(), 0)
        return None
    part.count(name.lower())
    return convert(value)


def _image(value: Any) -> Any:  # noqa: ANN401 - wandb's
    from rla_client.integrations.wandb.data_types import Image  # noqa: PLC0415 - only where there are such values

    return Image(value.image, caption=getattr(value, "_caption", None))


def _histogram(value: Any) -> Any:  # noqa: ANN401 - wandb's
    from rla_client.integrations.wandb.data_types import Histogram  # noqa: PLC0415

    return Histogram(np_histogram=(value.histogram, value.bins))


def _table(value: Any) -> Any:  # noqa: ANN401 - wandb's
    from rla_client.integrations.wandb.data_types import Table  # noqa: PLC0415

    cells = [
        [f"<{type(one).__name__}>" if _is_wandbs(type(one)) else one for one in row] for row in value.data
    ]
    return Table(columns=list(value.columns), data=cells)


def _html(value: Any) -> Any:  # noqa: ANN401 - wandb's
    from rla_client.integrations.wandb.data_types import Html  # noqa: PLC0415

    return Html(value.html)


def _film(value: Any) -> Any:  # noqa: ANN401 - wandb's
    from rla_client.integrations.wandb import data_types  # noqa: PLC0415

    path = value._path  # noqa: SLF001 - wandb's copy of the file
    return None if path is None else getattr(data_types, type(value).__name__)(str(path))


_CONVERSIONS = {
    "Image": _image, "Histogram": _histogram, "Table": _table, "Html": _html, "Video": _film, "Audio": _film,
}  # fmt: skip


def _is_wandbs(kind: type) -> bool:
    return (kind.__module__ or "").partition(".")[0] == "wandb"
