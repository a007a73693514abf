"""Render process of one picture, video or table.

The agent (`rla_agent/jobs/render_job.py`) starts it as a script, with the interpreter of the training
process: `<python> -E <this file> <request>`. Standard input is the blob and standard output the new file,
both plain files that the agent opened. So this process gets no path to write to, no socket and no
credentials, and it exits after one blob. Its messages go to standard error; the agent keeps their end as the
reason of a failure.

Request (JSON)::

    {"task": "figure" | "image" | "video" | "table", "format": "png", "offset": 0,
     "shape": [T, H, W, C], "dtype": "uint8", "fps": 30.0, "caption": "…"}   (the second line: of pixels)

A figure blob is a pickle of {"figure", "options", "rc", "fonts", "decoration"}, made by figure_pickle.py in a
process of this user. It is loaded only here, by plain `pickle`: the agent starts this process only for
figures of its own user's spool, or of a copied spool that the user trusts. Raw arrays are C-ordered bytes
from `offset` on.

This module does not import rla_client, so that it runs in any interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MAX_MEMORY_BYTES = 8 << 30  # of address space: numpy and its threads reserve more than they use
MAX_CPU_S = 300
MAX_FILE_BYTES = 4 << 30
NICE = 10

MAX_FIGURE_PIXELS = (
    100_000_000  # contract/job/media_job.py; `tight` may make a figure larger than its size says
)
VECTOR_FORMATS = frozenset({"pdf", "svg", "svgz", "eps", "ps", "pgf"})

LEGEND_SIZE, LABEL_SIZE, TICK_SIZE, TITLE_SIZE = 15, 18, 14, 13  # points, as RLA's
UPPER_LEFT = 2


def main(arguments: list[str]) -> int:
    """Process the request; the exit status is 0 if standard output is the complete file."""
    out = _take_output()
    _limit()
    request = json.loads(arguments[0])
    with open(0, "rb", closefd=False) as blob, open(out, "wb", closefd=False) as target:
        if request["task"] == "figure":
            render_figure(blob, target, request["format"])
        elif request["task"] == "image":
            encode_image(blob, target, request)
        elif request["task"] == "table":
            encode_table(blob, target)
        else:
            encode_video(blob, target, request)
        target.flush()
    return 0


def _take_output() -> int:
    """Duplicate standard output and redirect it to standard error, as libraries may print."""
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
        with contextlib.suppress(OSError, ValueError):  # a lower hard limit exists already
            resource.setrlimit(what, (bound, bound))


def render_figure(blob: BinaryIO, target: BinaryIO, format_: str) -> None:
    """Load a figure and draw it with the styles and fonts of the process that made it."""
    import matplotlib as mpl  # noqa: PLC0415 - not for images and videos

    mpl.use("agg")
    from matplotlib import font_manager  # noqa: PLC0415 - after the backend has been chosen
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    warnings.simplefilter("ignore")
    payload = pickle.load(blob)  # noqa: S301 - from this user's own spool
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in payload["fonts"]:
        if path not in known and os.path.isfile(path):
            font_manager.fontManager.addfont(path)
    for key, value in payload["rc"].items():
        with contextlib.suppress(KeyError, ValueError):  # of another release of matplotlib
            mpl.rcParams[key] = value
    figure = payload["figure"]
    FigureCanvasAgg(figure)
    if payload.get("decoration"):
        decorate(payload["options"], **payload["decoration"])
    if format_ not in VECTOR_FORMATS:
        _check_size(figure, payload["options"])
    figure.savefig(target, format=format_, **payload["options"])


def _check_size(figure: Any, options: dict[str, Any]) -> None:  # noqa: ANN401 - of matplotlib
    """Refuse a figure that a distant artist makes too large: drawing it would take minutes.

    Raises:
        ValueError: the figure is too large.
    """
    import matplotlib as mpl  # noqa: PLC0415 - not for images and videos

    if options.get("bbox_inches", mpl.rcParams["savefig.bbox"]) != "tight":
        return
    dpi = options.get("dpi") or mpl.rcParams["savefig.dpi"]
    dpi = figure.get_dpi() if dpi == "figure" else dpi
    figure.draw_without_rendering()
    box = figure.get_tightbbox(bbox_extra_artists=options.get("bbox_extra_artists"))
    if box.width * box.height * dpi * dpi > MAX_FIGURE_PIXELS:
        size = f"{box.width * dpi:.0f} x {box.height * dpi:.0f}"
        raise ValueError(f"the figure would have {size} pixels, at most {MAX_FIGURE_PIXELS} are drawn")


def decorate(
    options: dict[str, Any],
    axes: Any,  # noqa: ANN401 - functions of matplotlib of unlike types
    texts: tuple[str, str, str],
    *,
    legend_outside: bool,
    pretty: bool,
) -> None:
    """Apply the decorations of `pretty_plot_wrapper`, which cost as much as the drawing itself.

    Args:
        options: of savefig; options that make room for the legend are added.
        axes: the axes with the drawing.
        texts: x label, y label and title; an empty one leaves the axes' text as it is.
        legend_outside: put the legend to the right of the axes. There is a legend if something has a label.
        pretty: set font sizes and a grid.
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
    options: dict[str, Any] = {}
    if request.get("caption") and request["format"] == "png":
        from PIL.PngImagePlugin import PngInfo  # noqa: PLC0415 - as above

        options["pnginfo"] = PngInfo()
        options["pnginfo"].add_itxt("Description", request["caption"])
    format_ = {"jpg": "jpeg", "tif": "tiff"}.get(request["format"], request["format"])
    picture.save(target, format=format_, **options)


def encode_table(blob: BinaryIO, target: BinaryIO) -> None:
    """Write a table, msgpack of names and rows, as CSV; lists and dicts in a cell are JSON."""
    import csv  # noqa: PLC0415 - not for pictures
    import io  # noqa: PLC0415

    import msgpack  # noqa: PLC0415

    names, rows = msgpack.unpackb(
        blob.read(), unicode_errors="surrogatepass", strict_map_key=False, use_list=False
    )
    text = io.TextIOWrapper(target, "utf-8", "backslashreplace", newline="")
    # with this line end, csv quotes cells that contain either of its characters: contract/text/csv_lines.py
    writer = csv.writer(_NewlineEnds(text), lineterminator=_LINE_END)
    writer.writerow(names)
    writer.writerows([_cell_text(cell) for cell in row] for row in rows)
    text.flush()
    text.detach()


_LINE_END = "\r\n"


class _NewlineEnds:
    def __init__(self, sink: Any) -> None:  # noqa: ANN401 - a text file
        self._sink = sink

    def write(self, line: str) -> None:
        self._sink.write(line.removesuffix(_LINE_END) + "\n")


def _cell_text(cell: Any) -> Any:  # noqa: ANN401 - plain data
    if isinstance(cell, list | tuple | dict):
        try:
            cell = json.dumps(cell, ensure_ascii=False, default=str)
        except TypeError:  # a key that JSON does not support
            cell = str(cell)
    return cell.replace("\0", "\\x00") if isinstance(cell, str) else cell


def frames(blob: BinaryIO, request: dict[str, Any]) -> Iterator[Any]:
    """Yield the frames of a raw array as uint8, each of shape (H, W, C).

    Floats are in 0…1 if no value of the whole array is larger, else in 0…255; NaN is black.
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


def _largest(frame: NDArray[Any]) -> float:
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
        duration=max(round(1000 / request["fps"]), 20),  # viewers slow down frames below 20 ms
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
    with contextlib.suppress(BrokenPipeError):  # it ended early, which its exit status tells
        for frame in frames(blob, request):
            coder.stdin.write(frame.tobytes())
        coder.stdin.close()
    if coder.wait() != 0:
        raise OSError(f"ffmpeg ended with status {coder.returncode}")


def ffmpeg_path() -> str:
    """Path of ffmpeg, from the package imageio-ffmpeg or else from PATH.

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
