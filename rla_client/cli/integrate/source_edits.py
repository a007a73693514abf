"""Edits of a Python source at the positions that `ast` gives.

Whatever no edit names stays byte for byte: comments, quotes, line ends, the encoding.
"""

from __future__ import annotations

import ast
import io
import tokenize

from rla_client.contract.errors import ArgumentError

MAX_BYTES = 4 << 20  # a script that somebody writes has a hundredth of it


class SourceEdits:
    """One file's text, and what is to change in it.

    Attributes:
        before: the text as it is.
        encoding: of the file.
        line_end: of its first line.
        tree: its syntax.

    Args:
        content: the file's bytes.

    Raises:
        ArgumentError: it is no Python of this interpreter's version, or larger than `MAX_BYTES`.
    """

    def __init__(self, content: bytes) -> None:
        if len(content) > MAX_BYTES:
            raise ArgumentError(f"a script has at most {MAX_BYTES >> 20} MiB")
        try:
            self.encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
            text = content.decode(self.encoding)
            self.tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"it cannot be read as Python: {error}") from error
        # as Python counts lines, and in UTF-8, as it counts columns
        self._lines = [line.encode() for line in io.StringIO(text, newline="")]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[tuple[int, int, int, bytes]] = []  # start, end, order, new
        first = self._lines[0] if self._lines else b""
        self.before = text
        self.line_end = "\r\n" if first.endswith(b"\r\n") else "\n"

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        """The source of a node."""
        start, end = self._span(node)
        return b"".join(self._lines)[start:end].decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Put a text in the place of a node."""
        self._add(*self._span(node), text)

    def add_behind(self, node: ast.expr | ast.keyword, text: str) -> None:
        """Put a text behind a node."""
        end = self._span(node)[1]
        self._add(end, end, text)

    def add_argument(self, call: ast.Call, text: str) -> None:
        """Put an argument behind those of a call."""
        given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        if given:
            self.add_behind(max(given, key=lambda one: self._span(one)[1]), f", {text}")
        else:
            end = self._span(call)[1] - 1
            self._add(end, end, text)

    def stands_alone(self, statement: ast.stmt) -> bool:
        """Whether nothing but blanks stands before a statement on its line."""
        return not self._lines[statement.lineno - 1][: statement.col_offset].strip()

    def indentation(self, statement: ast.stmt) -> str:
        """What stands before a statement that stands alone."""
        return self._lines[statement.lineno - 1][: statement.col_offset].decode()

    def new_lines(self, statement: ast.stmt, *texts: str) -> str:
        """Statements in the place of one: below each other, or where it is not alone on its line beside."""
        if not self.stands_alone(statement):
            return "; ".join(texts)
        return (self.line_end + self.indentation(statement)).join(texts)

    def insert_after(self, statement: ast.stmt, text: str) -> bool:
        """Put a line behind a statement, indented as it is; False where more follows on its line."""
        if not self.stands_alone(statement):
            return False
        end = statement.end_lineno or statement.lineno
        rest = self._lines[end - 1][statement.end_col_offset or 0 :].strip()
        if rest and not rest.startswith(b"#"):
            return False
        last = self._lines[end - 1]
        line = f"{self.indentation(statement)}{text}{self.line_end}"
        if not last.endswith((b"\n", b"\r")):
            line = self.line_end + line.removesuffix(self.line_end)
        self._add(self._starts[end], self._starts[end], line)
        return True

    def insert_at_top(self, text: str) -> None:
        """Put a line before all statements, behind the docstring and imports from `__future__`."""
        number = 0
        for statement in self.tree.body:
            future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not future and not _is_text(statement):
                break
            number = statement.end_lineno or statement.lineno
        if not number:  # behind the line for the shell and the encoding
            while number < len(self._lines) and self._lines[number].startswith(b"#"):
                number += 1
        self._add(self._starts[number], self._starts[number], text + self.line_end)

    @property
    def changed(self) -> bool:
        """Whether there is an edit."""
        return bool(self._edits)

    def result(self) -> str:
        """The text with all edits.

        Raises:
            ArgumentError: what came out is no Python, as an edit met a line of a form that nobody thought of.
        """
        content = b"".join(self._lines)
        behind = len(content)
        for start, end, _, new in sorted(self._edits, reverse=True):
            if end > behind:
                line = content.count(b"\n", 0, start) + 1
                raise ArgumentError(f"two changes meet in line {line}")
            content = content[:start] + new + content[end:]
            behind = start
        text = content.decode()
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise ArgumentError(f"the changed script would not be Python: {error}") from error
        return text

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[end_line - 1] + end_column

    def _add(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, end, len(self._edits), text.encode()))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
