"""Jobs of figures, images and videos: kinds and formats.

Their bytes lie in a blob or a slot (contract/arena.py).
"""

from __future__ import annotations

JOB_FIGURE = "figure"
JOB_IMAGE = "image"
JOB_VIDEO = "video"
FORMATS = {
    JOB_FIGURE: frozenset({
        "png", "pdf", "svg", "svgz", "jpg", "jpeg", "tif", "tiff", "webp", "gif", "eps", "ps", "pgf", "raw",
        "rgba",
    }),
    JOB_IMAGE: frozenset({"png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "gif"}),
    JOB_VIDEO: frozenset({"mp4", "gif"}),
}  # fmt: skip
MAX_FPS = 1000.0
