"""The render process: one picture or video, made in a process of its own.

Started by the agent (`rla_agent/sinks/figure.py`) as a script, with the interpreter of the
training process: `<python> -E <this file> <request>`, the blob as standard input and the new
file as standard output, both plain files opened by the agent. So this process is given no path
to write to, no socket and no credentials, and it exits after one blob. Whatever it prints goes
to standard error, whose end the agent keeps as the reason of a failure.

Request (JSON)::

    {"task": "figure" | "image" | "video", "format": "png", "offset": 0,
     "shape": [T, H, W, C], "dtype": "uint8", "fps": 30.0}       (the second line: not for figures)

A figure blob is a pickle of {"figure", "options", "rc", "fonts", "decoration"}. It is loaded here and nowhere
else in this system. Its classes must be of libraries that draw (`is_loadable`); the same rule
in the client keeps other figures from coming here. This is a second fence, not a sandbox: the
first is that the spool belongs to the same user. Raw arrays are C-ordered bytes from `offset`.

The file is self-contained (no import of rla_client), so that it runs in any interpreter.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import pickle
import resource
import subprocess
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MEMORY_BYTES = 8 << 30  # of address space: numpy and its threads reserve more than they use
MAX_CPU_S = 300
MAX_FILE_BYTES = 4 << 30
NICE = 10

LEGEND_SIZE, LABEL_SIZE, TICK_SIZE, TITLE_SIZE = 15, 18, 14, 13  # points, as RLA's
UPPER_LEFT = 2

DRAWING_LIBRARIES = frozenset({
    "cartopy", "collections", "contourpy", "copyreg", "cycler", "dateutil", "datetime", "decimal", "enum",
    "fractions", "functools", "itertools", "kiwisolver", "matplotlib", "mpl_toolkits", "numpy", "pandas",
    "PIL", "pytz", "seaborn", "zoneinfo",
})  # fmt: skip
SAFE_BUILTINS = frozenset({
    "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "getattr", "int", "list", "object",
    "range", "reversed", "set", "slice", "str", "tuple", "type", "zip",
})  # fmt: skip
# No artist is called so, but what reads and writes files in these libraries is.
REFUSED_NAMES = ("eval", "exec", "fromfile", "genfromtxt", "load", "memmap", "open", "read", "run", "save")


def is_loadable(module: str, name: str) -> bool:
    """True when a figure's pickle may name `module.name`."""
    if module == "builtins":
        return name in SAFE_BUILTINS
    if module == "_codecs":
        return name == "encode"
    if name.rpartition(".")[2].startswith(REFUSED_NAMES):
        return False
    return module.partition(".")[0] in DRAWING_LIBRARIES


def _guarded_getattr(owner: object, name: str, *default: object) -> object:
    """`getattr` as bound methods in pickles need it, without the ways into the interpreter."""
    if name.startswith("__") and name.endswith("__"):
        raise pickle.UnpicklingError(f"a figure may not reach for {name}")
    return getattr(owner, name, *default)


class FigureUnpickler(pickle.Unpickler):
    """Loads what drawing libraries define, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
        """Resolve a global of the pickle.

        Raises:
            pickle.UnpicklingError: it is none that a figure needs.
        """
        if not is_loadable(module, name):
            raise pickle.UnpicklingError(f"a figure may not name {module}.{name}")
        if (module, name) == ("builtins", "getattr"):
            return _guarded_getattr
        found = super().find_class(module, name)
        home = getattr(found, "__module__", None)
        if isinstance(found, types.ModuleType) or (isinstance(home, str) and not _home_is_fine(home)):
            raise pickle.UnpicklingError(f"a figure may not name {module}.{name} (of {home})")
        return found


def _home_is_fine(home: str) -> bool:
    return home.partition(".")[0] in DRAWING_LIBRARIES | {builtins.__name__, "_codecs", "_functools"}


def main(arguments: list[str]) -> int:
    """Do the one request; the exit status is 0 when standard output holds the whole file."""
    out = _take_output()
    _limit()
    request = json.loads(arguments[0])
    with open(0, "rb", closefd=False) as blob, open(out, "wb", closefd=False) as target:
        if request["task"] == "figure":
            render_figure(blob, target, request["format"])
        elif request["task"] == "image":
            encode_image(blob, target, request)
        else:
            encode_video(blob, target, request)
        target.flush()
    return 0


def _take_output() -> int:
    """Keep the output for ourselves: what libraries print must not end up in it."""
    out = os.dup(1)
    os.dup2(2, 1)
    return out


def _limit() -> None:
    with contextlib.suppress(OSError):
        os.nice(NICE)
    for what, bound in (
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):  # a lower hard limit is there already
            resource.setrlimit(what, (bound, bound))


def render_figure(blob: BinaryIO, target: BinaryIO, format_: str) -> None:
    """Load a figure and draw it with the styles and fonts of the process that made it."""
    import matplotlib as mpl  # noqa: PLC0415 - not for images and videos

    mpl.use("agg")
    from matplotlib import font_manager  # noqa: PLC0415 - after the backend has been chosen
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    warnings.simplefilter("ignore")
    payload = FigureUnpickler(blob).load()
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in payload["fonts"]:
        if path not in known and os.path.isfile(path):
            font_manager.fontManager.addfont(path)
    for key, value in payload["rc"].items():
        with contextlib.suppress(KeyError, ValueError):  # another release of matplotlib
            mpl.rcParams[key] = value
    figure = payload["figure"]
    FigureCanvasAgg(figure)
    if payload.get("decoration"):
        decorate(payload["options"], **payload["decoration"])
    figure.savefig(target, format=format_, **payload["options"])


def decorate(
    options: dict[str, Any],
    axes: Any,  # noqa: ANN401 - matplotlib is untyped here
    texts: tuple[str, str, str],
    *,
    legend_outside: bool,
    pretty: bool,
) -> None:
    """Give a drawing what `pretty_plot_wrapper` promises; it costs as much as the drawing itself.

    Args:
        options: of savefig; those that make room for the legend are added.
        axes: what was drawn on.
        texts: x label, y label and title; empty ones are left alone.
        legend_outside: to the right of the axes. There is a legend when something has a label.
        pretty: set sizes and a grid.
    """
    legend = axes.get_legend()
    if axes.get_legend_handles_labels()[0]:
        place = {"loc": UPPER_LEFT, "bbox_to_anchor": (1, 1)} if legend_outside else {}
        legend = axes.legend(prop={"size": LEGEND_SIZE}, **place)
    for text, put in zip(texts, (axes.set_xlabel, axes.set_ylabel, axes.set_title), strict=True):
        if text:
            put(text)
    if pretty:
        axes.xaxis.label.set_fontsize(LABEL_SIZE)
        axes.yaxis.label.set_fontsize(LABEL_SIZE)
        axes.title.set_fontsize(TITLE_SIZE)
        axes.tick_params(labelsize=TICK_SIZE)
        axes.grid(visible=True)
    if legend is not None:
        options.setdefault("bbox_extra_artists", (legend,))
        options.setdefault("bbox_inches", "tight")


def encode_image(blob: BinaryIO, target: BinaryIO, request: dict[str, Any]) -> None:
    """Encode one raw array, shape (1, H, W, C)."""
    from PIL import Image  # noqa: PLC0415 - not for figures

    frame = next(iter(frames(blob, request)))
    if request["format"] in {"jpg", "jpeg", "bmp"} and frame.shape[2] == 4:  # noqa: PLR2004 - RGBA
        frame = frame[:, :, :3]
    picture = Image.fromarray(frame[:, :, 0] if frame.shape[2] == 1 else frame)
    picture.save(target, format={"jpg": "jpeg", "tif": "tiff"}.get(request["format"], request["format"]))


def frames(blob: BinaryIO, request: dict[str, Any]) -> Iterator[Any]:
    """Yield the frames of a raw array as uint8, shape (H, W, C) each.

    Floats are 0…1 when no value of the whole array is larger, else 0…255; NaN is black.
    """
    import numpy as np  # noqa: PLC0415 - not for figures

    count, *shape = request["shape"]
    dtype = np.dtype(request["dtype"])
    size = int(np.prod(shape)) * dtype.itemsize

    def raw() -> Iterator[Any]:
        blob.seek(request["offset"])
        for _ in range(count):
            data = blob.read(size)
            if len(data) != size:
                raise EOFError("the raw array is cut short")
            yield np.frombuffer(data, dtype).reshape(shape)

    scale = 1.0
    if dtype.kind == "b" or (dtype.kind == "f" and max(_largest(frame) for frame in raw()) <= 1.0):
        scale = 255.0
    for frame in raw():
        if dtype == np.uint8:
            yield frame
        else:
            values = np.nan_to_num(frame.astype(np.float32), nan=0.0, posinf=255.0, neginf=0.0)
            yield np.rint(np.clip(values * scale, 0.0, 255.0)).astype(np.uint8)


def _largest(frame: Any) -> float:  # noqa: ANN401 - numpy is not imported at the top
    import numpy as np  # noqa: PLC0415 - not for figures

    finite = frame[np.isfinite(frame)]
    return float(finite.max()) if finite.size else 0.0


def encode_video(blob: BinaryIO, target: BinaryIO, request: dict[str, Any]) -> None:
    """Encode raw frames to mp4 (ffmpeg) or gif (Pillow)."""
    if request["format"] == "gif":
        _encode_gif(blob, target, request)
    else:
        _encode_mp4(blob, target, request)


def _encode_gif(blob: BinaryIO, target: BinaryIO, request: dict[str, Any]) -> None:
    from PIL import Image  # noqa: PLC0415 - not for figures

    pictures = (
        Image.fromarray(frame[:, :, 0] if frame.shape[2] == 1 else frame[:, :, :3])
        for frame in frames(blob, request)
    )
    first = next(pictures)
    first.save(
        target,
        format="gif",
        save_all=True,
        append_images=pictures,
        duration=max(round(1000 / request["fps"]), 20),  # viewers slow down what is faster than 20 ms
        loop=0,
    )


def _encode_mp4(blob: BinaryIO, target: BinaryIO, request: dict[str, Any]) -> None:
    _, height, width, channels = request["shape"]
    layout = {1: "gray", 3: "rgb24", 4: "rgba"}[channels]
    out = target.fileno()
    os.set_inheritable(out, True)
    command = [
        ffmpeg_path(), "-hide_banner", "-loglevel", "error", "-nostdin", "-y",
        "-f", "rawvideo", "-pix_fmt", layout, "-s", f"{width}x{height}", "-r", str(request["fps"]),
        "-i", "pipe:0",
        "-an", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-preset", "veryfast", "-crf", "20",
        "-pix_fmt", "yuv420p", "-threads", "1", "-f", "mp4", f"/dev/fd/{out}",
    ]  # fmt: skip
    coder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(out,))
    assert coder.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it ended early: its exit status says so
        for frame in frames(blob, request):
            coder.stdin.write(frame.tobytes())
        coder.stdin.close()
    if coder.wait() != 0:
        raise OSError(f"ffmpeg ended with status {coder.returncode}")


def ffmpeg_path() -> str:
    """Path of ffmpeg: that of the package imageio-ffmpeg, else of the machine.

    Raises:
        FileNotFoundError: there is none.
    """
    try:
        import imageio_ffmpeg  # noqa: PLC0415 - optional
    except ImportError:
        import shutil  # noqa: PLC0415 - only here

        found = shutil.which("ffmpeg")
    else:
        found = imageio_ffmpeg.get_ffmpeg_exe()
    if not found:
        raise FileNotFoundError("no ffmpeg: install imageio-ffmpeg")
    return str(found)


if __name__ == "__main__":
    # The script's own folder must not shadow modules of the interpreter.
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]
    sys.exit(main(sys.argv[1:]))
