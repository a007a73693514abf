"""dowel's names on top of `rla_client.logger`, for scripts that use it.

    with tabular.prefix("evaluation/"):
        tabular.record("return", 12.5)
    logger.log("text")
    logger.log(tabular)      # these values go into the next row
    logger.dump_all(epoch)   # the row

Runners log `tabular` and dump the row after each epoch themselves.
"""

from rla_client.launcher.dowel.dowel_logger import DowelLogger, logger
from rla_client.launcher.dowel.log_outputs import (
    CsvOutput,
    LogOutput,
    StdOutput,
    TensorBoardOutput,
    TextOutput,
)
from rla_client.launcher.dowel.table_input import Histogram, TabularInput, tabular

__all__ = [
    "CsvOutput",
    "DowelLogger",
    "Histogram",
    "LogOutput",
    "StdOutput",
    "TabularInput",
    "TensorBoardOutput",
    "TextOutput",
    "logger",
    "tabular",
]
