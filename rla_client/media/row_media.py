"""Media among the values of a row.

`rla_client.log({"fig": figure})` and `record_tabular` ask here before they turn a value into plain data, so
that a picture does not become the text of its repr. Media are the classes of `media/logged_media` (`Image`,
`Table`, …), DataFrames (as tables), figures of matplotlib (also axes, seaborn's grids, pyplot itself), PIL
images, figures of plotly, arrays that can only be an image, and lists of these; other items of such a list
are reported as lost. The recorders write `results/<index>/<time-step>-<key>.png`. A plotly figure is saved as
an interactive page, `<time-step>-<key>.html`: a picture of it would take a browser and a second of the loop.

An array is an image if its type is uint8 and it has three dimensions, of which the last or the first is 1, 3
or 4. Other arrays stay numbers: a matrix of floats may mean anything.

This module imports none of these libraries: whoever has such a value has loaded its library.
"""

from __future__ import annotations

import base64
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import RlaError
from rla_client.contract.process.loaded_modules import loaded
from rla_client.contract.safe_names import component_problem
from rla_client.media.logged_media.logged_value import LoggedValue, is_frame
from rla_client.stream.values import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANNELS = (1, 3, 4)
_IMAGE_DIMENSIONS = 3
_CHECKED_ITEMS = 64  # of a list, which may have a million numbers
_NAME_BYTES = 180  # of the last part of a name, to which time-step and extension are added
_never: set[type] = set()  # types that are known not to be media


def is_media(value: object, path: tuple[int, ...] = ()) -> bool:  # noqa: PLR0911 - one line a kind
    """Whether a value becomes a file, or is a list with such a value among its first items. Never raises.

    Args:
        value: that was logged.
        path: ids of the lists around it, which bound the depth and detect cycles.
    """
    kind = type(value)
    if kind in _never:
        return False
    if kind is list or kind is tuple:
        items: Any = value
        if len(path) >= MAX_DEPTH or id(value) in path:
            return False
        return any(is_media(item, (*path, id(value))) for item in items[:_CHECKED_ITEMS])
    if isinstance(value, LoggedValue):
        return True
    try:
        if is_frame(value):
            return True
        dimensions = getattr(value, "ndim", None)
        if type(dimensions) is int:
            return dimensions == _IMAGE_DIMENSIONS and _is_image_array(value)
        if _is_image(value) or _is_plotly(value) or _figure_of(value) is not None:
            return True
    except Exception:  # noqa: BLE001 - foreign code (a property) may raise anything
        return False
    if kind.__module__ == "builtins" and kind is not ModuleType:
        _never.add(kind)
    return False


def media_file(value: object) -> tuple[str, str] | None:
    """Kind and extension of the file that a value becomes; None if it becomes no file or several."""
    if isinstance(value, list | tuple) or not is_media(value):
        return None
    if isinstance(value, LoggedValue):
        return (_kind(value), value.ending) if value.ending else None
    if is_frame(value):
        return "table", ".csv"
    return ("html", ".html") if _is_plotly(value) else ("image", ".png")


def save_media(
    key: str,
    value: Any,  # noqa: ANN401
    *,
    step: float | None,
    folder: str | None,
    show: Callable[[str, LoggedValue], object] | None = None,
) -> None:
    """Save a value under its key; a failure is a warning and counts as a loss.

    Args:
        key: `group/name`, as for a number.
        value: for which `is_media` is true.
        step: its time-step; None: the clock's.
        folder: destination if no run with a results folder is open.
        show: gets name and value of media that TensorBoard can show.
    """
    from rla_client.media import recording_target  # noqa: PLC0415 - only where there are media

    results = None if recording_target.is_bound() else folder
    if results is None and not recording_target.is_bound():
        recording_target.warn_once("no run", f"no run is open: {key} is not saved")
        return
    for name, one in _named(safe_name(key), value):
        try:
            _save(name if step is None else _with_step(name, step), one, results, clock=step is None)
            if show is not None and isinstance(one, LoggedValue) and one.is_event:
                show(name, one)
        except (RlaError, OSError) as error:
            recording_target.lose(_kind(one), name, str(error))
        except Exception as error:  # noqa: BLE001 - errors of other libraries; logging never ends training
            recording_target.lose(_kind(one), name, f"{type(error).__name__}: {error}")


def _kind(value: object) -> str:
    return type(value).__name__.lower() if isinstance(value, LoggedValue) else "picture"


def safe_name(name: object) -> str:
    """A relative path without parts that are invalid in a file name."""
    parts = [_cut(part) for part in str(name).replace("\\", "/").split("/")]
    return "/".join(part for part in parts if part and not component_problem(part)) or "unnamed"


def _cut(part: str) -> str:
    raw = part.encode("utf-8", "backslashreplace")
    return part if len(raw) <= _NAME_BYTES else raw[:_NAME_BYTES].decode("utf-8", "ignore")


def _named(name: str, value: Any, around: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    if isinstance(value, list | tuple) and id(value) not in around:
        for number, one in enumerate(value):
            yield from _named(f"{name}-{number}", one, (*around, id(value)))
    else:
        yield name, value


def _with_step(name: str, step: float) -> str:
    above, slash, last = name.rpartition("/")
    return f"{above}{slash}{step}-{last}"


def _save(name: str, value: Any, results: str | None, *, clock: bool) -> None:  # noqa: ANN401
    from rla_client.media.figure_recorder import MatplotlibRecorder  # noqa: PLC0415 - only where there are media
    from rla_client.media.image_recorder import ImgRecorder  # noqa: PLC0415
    from rla_client.media.logged_media.table import Table  # noqa: PLC0415
    from rla_client.media.result_file import keep_bytes  # noqa: PLC0415

    where: dict[str, Any] = {"cover": True, "add_timestamp": clock, "results_dir": results}
    if isinstance(value, LoggedValue):
        value.save(name, where)
    elif is_frame(value):
        Table(data=value).save(name, where)
    elif _is_plotly(value):
        page = str(value.to_html(include_plotlyjs=False)).replace("</head>", f"{_plotly_script()}</head>", 1)
        keep_bytes(f"{name}.html", page.encode("utf-8", "backslashreplace"), where)
    elif (figure := _figure_of(value)) is not None:
        MatplotlibRecorder.save(name, figure, **where)
    else:
        ImgRecorder.save(name, value, **where)


def _is_image_array(value: Any) -> bool:  # noqa: ANN401
    if not str(getattr(value, "dtype", "")).endswith("uint8"):
        return False
    first, middle, last = (int(side) for side in value.shape)
    if last in CHANNELS:
        return min(first, middle) > 1
    return first in CHANNELS and min(middle, last) > 1


def _is_image(value: object) -> bool:
    module = loaded("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _is_plotly(value: object) -> bool:
    module = loaded("plotly.basedatatypes")
    return module is not None and isinstance(value, module.BaseFigure)


@cache
def _plotly_script() -> str:
    """The tag that loads plotly's script, with its hash; plotly would read and hash 5 MB for each figure."""
    import hashlib  # noqa: PLC0415 - not at import of the package

    from plotly.offline import get_plotlyjs, get_plotlyjs_version  # noqa: PLC0415 - who has a figure has it

    digest = base64.b64encode(hashlib.sha256(get_plotlyjs().encode()).digest()).decode()
    address = f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"
    checked = f'integrity="sha256-{digest}" crossorigin="anonymous"'
    return f'<script charset="utf-8" src="{address}" {checked}></script>'


def _figure_of(value: Any) -> Any:  # noqa: ANN401 - a matplotlib figure
    """The matplotlib figure that a value is or belongs to, if any."""
    module = loaded("matplotlib.figure")
    if module is None:
        return None
    if isinstance(value, ModuleType):
        return value.gcf() if value is loaded("matplotlib.pyplot") else None
    if isinstance(value, module.FigureBase):
        return value
    figure = getattr(value, "figure", None)
    return figure if isinstance(figure, module.FigureBase) else None
