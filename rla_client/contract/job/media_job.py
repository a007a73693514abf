"""Limits of media jobs.

Media are figures, images, videos and tables. Their bytes are in a blob or a slot.
"""

from __future__ import annotations

JOB_FIGURE = "figure"
JOB_IMAGE = "image"
JOB_VIDEO = "video"
JOB_TABLE = "table"
FORMATS = {
    JOB_FIGURE: frozenset({
        "png", "pdf", "svg", "svgz", "jpg", "jpeg", "tif", "tiff", "webp", "gif", "eps", "ps", "pgf", "raw",
        "rgba",
    }),
    JOB_IMAGE: frozenset({"png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "gif"}),
    JOB_VIDEO: frozenset({"mp4", "gif"}),
    JOB_TABLE: frozenset({"csv"}),
}  # fmt: skip
MAX_FPS = 1000.0
MAX_CAPTION_CHARS = 2000
# larger media would block the next ones, or exhaust memory; refused where they are recorded
MAX_SIDE = 16384  # pixels of an image or frame
MAX_FRAMES = 1_000_000
MAX_RAW_BYTES = 4 << 30  # of an image or video before it is encoded
MAX_BLOB_BYTES = 256 << 20  # of a figure or table; an imshow of a 4k x 4k float array is half of it
MAX_FIGURE_PIXELS = 100_000_000  # some seconds of drawing
VECTOR_FORMATS = frozenset({"pdf", "svg", "svgz", "eps", "ps", "pgf"})  # their pixels cost nothing
