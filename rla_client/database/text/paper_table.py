"""Table of estimates for a paper, as LaTeX (booktabs), Markdown or Typst."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rla_client.database.text.safe_text import clean

PaperForm: TypeAlias = Literal["latex", "markdown", "typst"]
SIGNIFICANT = 2  # digits of half an interval; the mean has the same decimals
MOST_DECIMALS = 6
MIN_POWER = -307  # smaller powers of ten cannot be divided by
SMALL, LARGE = 1e-3, 1e6  # other numbers are written with a power of ten
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after \\ or \midrule it would start an option
    "*": "{*}",  # likewise
    "-": "{-}",  # two of them would be a dash
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~&$]")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")  # ASCII; in Typst a backslash escapes each


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs.

    Attributes:
        mean: mean over the runs that have the metric; None if none has it.
        half: half of its interval; None for a single run.
        runs: number of these runs, if other runs of the row lack the metric; else None.
    """

    mean: float | None
    half: float | None = None
    runs: int | None = None


Cell: TypeAlias = str | int | Estimate


def paper_table(form: PaperForm, names: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    """The table as text.

    Args:
        form: markup language.
        names: heads of the columns; any text.
        rows: cells; any text.
        caption: description in one line; a comment in LaTeX and Typst, below the table in Markdown.
    """
    return {"latex": _latex, "markdown": _markdown, "typst": _typst}[form](names, rows, caption)


def estimate_text(cell: Estimate) -> str:
    """Plain text such as `0.23 ± 0.042`, rounded as in a paper."""
    return _with_runs(_estimate(cell, "{} ± {}", "{}e{}", "-"), cell)


def rounded(mean: float, half: float | None) -> tuple[str, str | None, int]:
    """Mean and half of its interval with the same decimals, and the power of ten to multiply both with."""
    if not math.isfinite(mean) or (half is not None and not math.isfinite(half)):
        return f"{mean:g}", None, 0
    largest = max(abs(mean), half or 0.0)
    power = math.floor(math.log10(largest)) if largest and not SMALL <= largest < LARGE else 0
    scale = 10.0 ** max(power, MIN_POWER)
    mean, half = mean / scale, None if half is None else half / scale
    if not half:
        return f"{mean:.4g}", None if half is None else "0", power
    decimals = min(SIGNIFICANT - 1 - math.floor(math.log10(half)), MOST_DECIMALS)
    texts = [f"{round(value, decimals):.{max(decimals, 0)}f}" for value in (mean, half)]
    return texts[0], texts[1], power


def _estimate(cell: Estimate, both: str, powered: str, nothing: str) -> str:
    if cell.mean is None:
        return nothing
    mean, half, power = rounded(cell.mean, cell.half)
    text = mean if half is None else both.format(mean, half)
    text = f"({text})" if power and half is not None else text
    return powered.format(text, power) if power else text


def _with_runs(text: str, cell: Estimate) -> str:
    return text if cell.runs is None or cell.mean is None else f"{text} ({cell.runs} runs)"


def _latex(names: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    def cell_text(cell: Cell) -> str:
        if not isinstance(cell, Estimate):
            return _latex_text(cell)
        text = _estimate(cell, r"{} \pm {}", r"{} \times 10^{{{}}}", "")
        number = f"${text}$" if text and math.isfinite(cell.mean or 0.0) else text or "--"
        return _with_runs(number, cell)

    lines = [r" & ".join(map(cell_text, row)) + r" \\" for row in rows]
    kinds = "".join("r" if one else "l" for one in _numbers(names, rows))
    return "\n".join(
        [
            f"% {caption}; needs \\usepackage{{booktabs}}",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            " & ".join(map(_latex_text, names)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _latex_text(value: object) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in clean(value))


def _markdown(names: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    def cell_text(cell: Cell) -> str:
        if isinstance(cell, Estimate):
            return estimate_text(cell)
        return _MARKDOWN.sub(r"\\\g<0>", clean(cell))

    rule = ["--:" if one else "---" for one in _numbers(names, rows)]
    lines = [list(map(cell_text, names)), rule, *(list(map(cell_text, row)) for row in rows)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", caption])


def _typst(names: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    def cell_text(cell: Cell) -> str:
        if not isinstance(cell, Estimate):
            return f"[{_typst_text(cell)}]"
        text = _estimate(cell, "{} plus.minus {}", "{} times 10^({})", "")
        number = f"${text}$" if text and math.isfinite(cell.mean or 0.0) else text or "--"
        return f"[{_with_runs(number, cell)}]"

    align = ", ".join("right" if one else "left" for one in _numbers(names, rows))
    lines = [f"  {', '.join(map(cell_text, row))}," for row in rows]
    return "\n".join(
        [
            f"// {caption}",
            "#table(",
            f"  columns: {len(names)},",
            f"  align: ({align},),",
            "  stroke: none,",
            "  table.hline(),",
            f"  table.header({', '.join(map(cell_text, names))}),",
            "  table.hline(stroke: 0.5pt),",
            *lines,
            "  table.hline(),",
            ")",
        ]
    )


def _typst_text(value: object) -> str:
    return _PUNCTUATION.sub(r"\\\g<0>", clean(value))


def _numbers(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[bool]:
    """For each column, whether it holds only numbers."""
    return [all(not isinstance(row[place], str) for row in rows) for place in range(len(names))]
