"""Edits of a Python source at the positions that `ast` gives.

Everything outside of the edits stays byte for byte: comments, quotes, line ends, the encoding.
"""

from __future__ import annotations

import ast
import io
import tokenize

from rla_client.contract.errors import ArgumentError

MAX_BYTES = 4 << 20  # a hundred times the size of a large script


class SourceEdits:
    """Text of a file with its edits.

    Attributes:
        before: text before the edits.
        encoding: encoding of the file.
        line_end: line end of its first line.
        tree: its syntax tree.

    Args:
        content: the file's bytes.

    Raises:
        ArgumentError: it is no valid Python for this interpreter, or larger than `MAX_BYTES`.
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
        # lines as Python counts them, in UTF-8, because its columns are bytes
        self._lines = [line.encode() for line in io.StringIO(text, newline="")]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[tuple[int, int, int, bytes]] = []  # start, end, order, new
        first = self._lines[0] if self._lines else b""
        self.before = text
        self.line_end = "\r\n" if first.endswith(b"\r\n") else "\n"

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        """Source text of a node."""
        start, end = self._span(node)
        return b"".join(self._lines)[start:end].decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Replace a node by a text."""
        self._add(*self._span(node), text)

    def add_behind(self, node: ast.expr | ast.keyword, text: str) -> None:
        """Insert a text after a node."""
        end = self._span(node)[1]
        self._add(end, end, text)

    def add_argument(self, call: ast.Call, text: str) -> None:
        """Append an argument to a call."""
        given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        if given:
            self.add_behind(max(given, key=lambda one: self._span(one)[1]), f", {text}")
        else:
            end = self._span(call)[1] - 1
            self._add(end, end, text)

    def stands_alone(self, statement: ast.stmt) -> bool:
        """Whether only blanks precede a statement on its line."""
        return not self._lines[statement.lineno - 1][: statement.col_offset].strip()

    def indentation(self, statement: ast.stmt) -> str:
        """Indentation of a statement that stands alone."""
        return self._lines[statement.lineno - 1][: statement.col_offset].decode()

    def new_lines(self, statement: ast.stmt, *texts: str) -> str:
        """Text of statements to replace one: on separate lines, or on one line if it does not stand alone."""
        if not self.stands_alone(statement):
            return "; ".join(texts)
        return (self.line_end + self.indentation(statement)).join(texts)

    def insert_after(self, statement: ast.stmt, text: str) -> bool:
        """Insert a line after a statement with its indentation; False if the statement shares its line."""
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
        """Insert a line before all statements, but after the docstring and imports from `__future__`."""
        number = 0
        for statement in self.tree.body:
            future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not future and not _is_text(statement):
                break
            number = statement.end_lineno or statement.lineno
        if not number:  # after the lines for the shell and the encoding
            while number < len(self._lines) and self._lines[number].startswith(b"#"):
                number += 1
        self._add(self._starts[number], self._starts[number], text + self.line_end)

    @property
    def changed(self) -> bool:
        """Whether there is an edit."""
        return bool(self._edits)

    def result(self) -> str:
        """Text with all edits.

        Raises:
            ArgumentError: the result is no valid Python, because of an unforeseen form of a line.
        """
        content = b"".join(self._lines)
        following = len(content)
        for start, end, _, new in sorted(self._edits, reverse=True):
            if end > following:
                line = content.count(b"\n", 0, start) + 1
                raise ArgumentError(f"two changes meet in line {line}")
            content = content[:start] + new + content[end:]
            following = start
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
