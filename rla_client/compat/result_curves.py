"""RLA's former plot function."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import LOG


def plot_res_func(  # noqa: PLR0913, PLR0917 - the original's
    prefix_dir: str,
    regs: Sequence[str],
    param_keys: Sequence[str],
    value_keys: Sequence[str],
    scale_dict: Mapping[str, Callable[[Any], Any]] | None = None,
    replace_legend_keys: Sequence[str] | None = None,
    save_name: str | None = None,
    key_to_legend_fn: Callable[[list[str], str], str] | None = None,
    **further: Any,  # noqa: ANN401 - of plot_func
) -> Any:  # noqa: ANN401
    """The former version of `plot_func`, for a table's log folder `<data root>/log/<table>`.

    Args:
        prefix_dir: the log folder.
        regs: globs below it.
        param_keys: hyper-parameters by which runs are grouped.
        value_keys: metrics.
        scale_dict: see `plot_func`.
        replace_legend_keys: a legend for each of `regs`.
        save_name: see `plot_func`.
        key_to_legend_fn: gets `key=value` texts and a metric.
        **further: see `plot_func`; `y_bound`, `x_start` and `remove_outlier` have no effect.

    Raises:
        ArgumentError: `prefix_dir` is not the log folder of a table.
    """
    from rla_client.plot.rla_plotters import plot_func  # noqa: PLC0415 - not at import of the package

    root, mark, table = os.path.normpath(prefix_dir).replace(os.sep, "/").rpartition(f"/{LOG}/")
    if not mark:
        raise ArgumentError(f"prefix_dir is <data root>/{LOG}/<table>, got {prefix_dir!r}")
    for name in ("y_bound", "x_start", "remove_outlier", "use_buf"):
        further.pop(name, None)
    if key_to_legend_fn is not None:
        older = key_to_legend_fn
        further["key_to_legend_fn"] = lambda parse_dict, keys, y_name, _joined=True: older(
            [f"{key}={parse_dict[key]}" for key in keys], y_name
        )
    globs = [reg.lstrip("/") for reg in regs]
    return plot_func(
        root, table, globs, list(param_keys), list(value_keys), scale_dict=scale_dict,
        regs2legends=replace_legend_keys, save_name=save_name, **further,
    )  # fmt: skip
