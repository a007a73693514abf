"""Tables for papers: rounding, each form, names that would be commands of the form."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest

from rla_client.database.text.paper_table import (
    Cell,
    Estimate,
    PaperForm,
    estimate_text,
    paper_table,
    rounded,
)

HOSTILE = [
    "[64, 64]", "*a*", "a_b^c~d", "\\input{/etc/passwd}", "50 % & more", "{x}", "$x$", "#let x",
    "a--b", "1. x",
    "`code`", "<b>|</b>", "@ref", "= head", "// no comment", "/* nor this */", "two\nlines", "\x1b[31m", "üβ",
    "\"q\" 'q'",
]  # fmt: skip


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (0.226018, 0.4234, "0.23 ± 0.42"),
        (0.5, 0.0996, "0.500 ± 0.100"),
        (123.456, 12.3456, "123 ± 12"),
        (12345.6, 1234.5, "12300 ± 1200"),
        (0.5, 0.0, "0.5 ± 0"),
        (0.123456, None, "0.1235"),
        (1234567.0, 98765.0, "(1.235 ± 0.099)e6"),
        (0.00001234, 0.0000021, "(1.23 ± 0.21)e-5"),
        (2e9, None, "2e9"),
        (math.nan, math.nan, "nan"),
        (math.inf, math.nan, "inf"),
        (1e308, 1e300, "(1.000000 ± 0.000000)e308"),
        (5e-324, 5e-324, None),
        (-0.04, 0.3, "-0.04 ± 0.30"),
        (0.0, 0.0, "0 ± 0"),
    ],
)
def test_the_mean_ends_where_two_digits_of_the_interval_do(
    mean: float, half: float | None, text: str | None
) -> None:
    found = estimate_text(Estimate(mean, half))
    assert found == text if text else found
    assert len(rounded(mean, half)) == 3


def test_runs_without_the_metric_are_counted() -> None:
    assert estimate_text(Estimate(1.0, 0.5, 2)) == "1.00 ± 0.50 (2 runs)"
    assert estimate_text(Estimate(None, None, 0)) == "-"


def rows() -> list[list[Cell]]:
    return [
        ["0.1", 3, Estimate(0.226, 0.42)],
        ["0.01", 3, Estimate(2.5e7, 1.1e6, 2)],
        ["1", 1, Estimate(None, None, 0)],
        ["2", 1, Estimate(math.nan)],
    ]


def test_latex() -> None:
    assert paper_table("latex", ["lr", "runs", "eval/ret_mean"], rows(), "means").splitlines() == [
        r"% means; needs \usepackage{booktabs}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"lr & runs & eval/ret\_mean \\",
        r"\midrule",
        r"0.1 & 3 & $0.23 \pm 0.42$ \\",
        r"0.01 & 3 & $(2.50 \pm 0.11) \times 10^{7}$ (2 runs) \\",
        r"1 & 1 & -- \\",
        r"2 & 1 & nan \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_markdown() -> None:
    assert paper_table("markdown", ["lr", "runs", "a|b"], rows(), "means").splitlines()[:4] == [
        r"| lr | runs | a\|b |",
        "| --- | --: | --: |",
        "| 0.1 | 3 | 0.23 ± 0.42 |",
        "| 0.01 | 3 | (2.50 ± 0.11)e7 (2 runs) |",
    ]


def test_typst() -> None:
    lines = paper_table("typst", ["lr", "runs", "ret"], rows(), "means").splitlines()
    assert lines[:3] == ["// means", "#table(", "  columns: 3,"]
    assert r"  [0\.1], [3], [$0.23 plus.minus 0.42$]," in lines
    assert "  [0\\.01], [3], [$(2.50 plus.minus 0.11) times 10^(7)$ (2 runs)]," in lines


def test_no_name_is_a_command_of_markdown() -> None:
    lines = paper_table("markdown", ["x"], [[text] for text in HOSTILE], "means").splitlines()
    assert len(lines) == 2 + len(HOSTILE) + 2
    assert all(line.count("|") - line.count("\\|") == 2 for line in lines[:-2])


@pytest.mark.parametrize("form", ["latex", "typst"])
def test_a_compiler_takes_any_name(form: PaperForm, tmp_path: Path) -> None:
    tool = shutil.which("pdflatex" if form == "latex" else "typst")
    if tool is None:
        pytest.skip(f"no compiler of {form}")
    text = paper_table(form, HOSTILE[:3], [[one, 1, Estimate(0.5, 0.1)] for one in HOSTILE], "means")
    path = tmp_path / ("x.tex" if form == "latex" else "x.typ")
    if form == "latex":
        head = "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{booktabs}\\begin{document}\n"
        text = head + text.replace("β", "b") + "\n\\end{document}\n"
    path.write_text(text)
    words = ["-halt-on-error", path.name] if form == "latex" else ["compile", path.name]
    done = subprocess.run([tool, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
