"""Names in a database's layout.

No I/O, no clock. A database is `<data_root>/<kind>/<task_table_name>/<index>`; `run_index` has the index.
"""

from __future__ import annotations

from typing import Final

LOG = "log"
CODE = "code"
CHECKPOINT = "checkpoint"
ARCHIVE_TESTER = "archive_tester"
HYPARAMETER = "hyperparameter"
OTHER_RESULTS = "results"
TMP_DATA = "tmp_data"
SAMPLES = "samples"
DEFAULT_LOG_TYPES = (LOG, CODE, CHECKPOINT, ARCHIVE_TESTER, HYPARAMETER, OTHER_RESULTS, TMP_DATA, SAMPLES)
FOLDER_KINDS = tuple(kind for kind in DEFAULT_LOG_TYPES if kind != ARCHIVE_TESTER)
MADE_AT_ONCE = tuple(kind for kind in FOLDER_KINDS if kind != SAMPLES)  # that one with the first sample
PRUNABLE = (CHECKPOINT, OTHER_RESULTS, TMP_DATA, SAMPLES)  # kinds whose files may be on the master alone
ARCHIVED_TABLE = "arc"
HYPARAM_FILE_NAME = "parameter"
LOG_NAME_FORMAT_VERSION = "v1"
OUTPUT_NAMES = {
    "csv": "progress.csv",
    "json": "progress.json",
    "log": "log.txt",
    "warn": "warn.txt",
    "backup": "backup.txt",
    "console": "console.txt",
}
SINKS = ("stdout", "log", "csv", "json", "tensorboard")  # what LOG_USED may name
BRIEF = "brief"  # instead of stdout: the first rows
PRINTED = frozenset({"stdout", BRIEF})  # by the training process
SAMPLES_FILE = "samples.jsonl.gz"  # of a stream, in the folder of its samples
ALWAYS_OUTPUTS = ("warn", "backup", SAMPLES)  # that every stream has, requested or not
CONSOLE = "console"  # the output of a stream that has no other: the run's printed text
TAKEN_NAMES = (
    "tb",
    "run.json",
    "system.csv",
    SAMPLES_FILE,
)  # of a log folder, by what is not an output of a chosen name
TIME_STEP = "time-step"  # columns of each row that say when, not what
TIMESTAMP = "timestamp"
JOBS_FOLDER: Final = ".rla-jobs"  # of a data root: rank 0 of a job describes the run here
RESUME_FOLDER = ".resume"  # in the checkpoint item: what exact resume needs beside the `.pt`
MAX_STATE_BYTES = 4 << 20  # of a resume state; larger values are in a file beside it


def item_path(kind: str, table: str, index: str) -> str:
    """Path of one item below the data root; for archive_tester without its file ending."""
    return f"{kind}/{table}/{index}"


def samples_file(label: str) -> str:
    """Name of the samples' file of a stream with this label."""
    stem, dot, ending = SAMPLES_FILE.partition(".")
    return f"{stem}{dot}{label}{dot}{ending}" if label else SAMPLES_FILE


def is_samples_file(name: str) -> bool:
    """Whether a file is called as those of samples are."""
    stem, dot, ending = SAMPLES_FILE.partition(".")
    return name.startswith(stem + dot) and name.endswith(dot + ending)


PRUNED_FOLDER = ".rla-pruned"
DROPPED_NOTE: Final = ".rla-dropped"
FETCHED_MARK = ".rla-fetched"  # in the log folder of a run that was fetched in order to be resumed
# in an item's folder: files of it came from the master or from a copied spool; only its presence counts
FOREIGN_MARK: Final = ".rla-foreign"
PARTS_FOLDER: Final = ".rla-parts"  # in the checkpoint item: sharded checkpoints that are not whole yet
OWN_NAMES: Final = frozenset(
    (PRUNED_FOLDER, FETCHED_MARK, FOREIGN_MARK, DROPPED_NOTE, PARTS_FOLDER)
)  # never sent


def arrays_name(stem: str, order: int) -> str:
    """Name in `.resume` of the arrays of the save `order`; `stem`: of the checkpoint's name."""
    return f"{stem}.{order}.arrays"
