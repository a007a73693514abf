"""The layout of a code blob, which holds the code of a run.

::

    offset  size  field
    0       8     magic     BLOB_MAGIC
    8       …     contents, one after the other
    …       n     index     msgpack: [[relative path, bytes], …] in the order of the contents
    end-12  4     n         little endian
    end-8   8     magic     BLOB_MAGIC
"""

from __future__ import annotations

import struct

JOB_CODE = "code"
BLOB_MAGIC = b"RLACODE1"
BLOB_TAIL = struct.Struct("<I8s")
MAX_FILE_BYTES = 8 << 20  # a source file is never this large; data and weights are
MAX_TOTAL_BYTES = 100 << 20  # of one run
MAX_FILES = 20_000  # the walk of a tree this size takes about a second
MAX_INDEX_BYTES = 16 << 20
