"""Jobs of figures, images and videos: kinds, formats, and the shared-memory slots of large arrays.

A slot is a file of `/dev/shm` that the client keeps mapped and uses again and again, because a warm copy is
as fast as memory::

    offset  size  field
    0       8     magic     SLOT_MAGIC
    8       4     state     FREE or BUSY                       (little endian, as all)
    12      4     zero
    16      8     number    of the job whose array lies here
    24      8     length    of the next
    32      …     owner     the stream's folder, so that what a killed agent left behind is found
    4096    …     C-ordered bytes of the array
"""

from __future__ import annotations

import struct

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
SLOT_FOLDER = "/dev/shm"
SLOT_MAGIC = b"RLASLOT1"
SLOT_HEADER = struct.Struct("<8sIIQ")
SLOT_OWNER_BYTES = struct.Struct("<Q")
SLOT_OWNER_OFFSET = SLOT_HEADER.size + SLOT_OWNER_BYTES.size
SLOT_OWNER_MAX = 4000  # bytes
SLOT_DATA_OFFSET = 4096
FREE = 0
BUSY = 1
