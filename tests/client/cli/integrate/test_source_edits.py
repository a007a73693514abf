"""Edits of a source at positions of its syntax."""

from __future__ import annotations

import ast

import pytest

from rla_client.cli.integrate.source_edits import MAX_BYTES, SourceEdits
from rla_client.contract.errors import ArgumentError


@pytest.mark.parametrize(
    "content",
    [
        b"import a\nx = 1  # kept\n",
        b"import a\r\nx = 1\r\n",
        b"import a\nx = 1",
        "import a\nx = 'ü', é  # ß\n".encode(),
        "# coding: latin-1\nimport a\nx = é\n".encode("latin-1"),
        b"import a\nx = (\n    1,\n)  # of two\x0c lines\n",
        b"\xef\xbb\xbfimport a\nx = 1\n",
    ],
)
def test_what_no_edit_names_stays(content: bytes) -> None:
    source = SourceEdits(content)
    assert source.before.encode(source.encoding) == content
    source.replace(source.tree.body[0], "import b")
    assert source.insert_after(source.tree.body[-1], "# end")
    end = b"\r\n" if b"\r\n" in content else b"\n"
    more = b"# end" + end if content.endswith(b"\n") else end + b"# end"
    assert source.result().encode(source.encoding) == content.replace(b"import a", b"import b") + more


def test_a_line_goes_behind_docstring_and_future() -> None:
    source = SourceEdits(
        b'#!/usr/bin/python\n"""What it does."""\nfrom __future__ import annotations\nx = 1\n'
    )
    source.insert_at_top("import b")
    assert source.result().splitlines()[3:] == ["import b", "x = 1"]
    source = SourceEdits(b"#!/usr/bin/python\nx = 1\n")
    source.insert_at_top("import b")
    assert source.result().splitlines() == ["#!/usr/bin/python", "import b", "x = 1"]


def test_a_statement_that_shares_its_line_gets_no_line() -> None:
    source = SourceEdits(b"if x: a = 1\nb = 1; c = 2\n")
    condition, second, third = source.tree.body
    assert isinstance(condition, ast.If)
    assert not source.insert_after(condition.body[0], "d = 1")
    assert not source.insert_after(second, "d = 1")
    assert not source.insert_after(third, "d = 1")
    assert source.new_lines(condition.body[0], "e", "f") == "e; f"
    assert not source.changed


def test_what_is_no_python_or_would_be_none() -> None:
    for content in (b"print 'two'\n", b"\xff\n", b"x = 1\0\n", b"#" * (MAX_BYTES + 1)):
        with pytest.raises(ArgumentError):
            SourceEdits(content)
    source = SourceEdits(b"f((1))\n")
    call = source.tree.body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    source.add_argument(call.value, "a=1")
    with pytest.raises(ArgumentError, match="would not be Python"):
        source.result()
    source = SourceEdits(b"f(g(1))\n")
    statement = source.tree.body[0]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    source.replace(statement.value, "h()")
    source.replace(statement.value.args[0], "2")
    with pytest.raises(ArgumentError, match="two changes meet in line 1"):
        source.result()
