"""Redaction of secrets in texts, command lines or plain data.

A value is secret by the name of its parameter, option or variable (`secret_names.secrecy`), or inside a text
by its form: a password in a URL, `token=…`, `"api_key": "…"`, a token with a well-known prefix. Each hidden
value is replaced by the marker HIDDEN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from rla_client.code.secret_names import ANY, OPEN, TEXT, secrecy

HIDDEN = "<hidden>"
_NO_TEXT = frozenset({"", "true", "false", "none", "null"})
_REFERENCE = re.compile(r"\$\{[^}]*\}|\$[A-Z][A-Z0-9_]{3,}")
_SPECIAL_TOKEN = re.compile(r"<[^>]*>|\[[^\]]*\]")
_URL_LOGIN = re.compile(
    r"\b(?P<scheme>[a-z][a-z0-9+.-]{1,20}://)(?P<user>[^\s/:@'\"]{0,500})"
    r"(?::(?!\d{1,5}/)(?P<password>[^\s'\"]{0,500}))?@",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"""(?P<before>(?:^|[{,\s&?;"'(\[])[+~-]{0,2})(?P<name>[A-Za-z_][\w.-]{0,100})"""
    r"""(?P<sign>\\?["']?[ ]?(?:=(?!=)|:(?!//))[ ]?)"""
    r"""(?P<value>\\?"[^"\n]*"|'[^'\n]*'|[^\s"',;&(){}\[\]]+)"""
)
_HEADER = re.compile(
    r"\b(?P<name>(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,30}(?:key|token))(?P<sign>\s?:\s?)"
    r"(?P<value>[^\n'\"]+)",
    re.IGNORECASE,
)
_KNOWN_FORM = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{40,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}"
    r"|sk-(?:(?:proj|ant|or)-[\w-]{20,}|[A-Za-z0-9]{20,})|A[KS]IA[0-9A-Z]{16}|xox[abposr]-[\w-]{10,}"
    r"|AIza[\w-]{35}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})"
)


def is_secret_value(level: int, value: object) -> bool:
    """Whether a plain value is secret, given the secrecy of its name."""
    if level == OPEN or value is None or isinstance(value, bool):
        return False
    if isinstance(value, int | float):
        return level == ANY
    text = str(value).strip()
    if text.lower() in _NO_TEXT or _REFERENCE.fullmatch(text):
        return False
    return level == ANY or not (_is_number(text) or _SPECIAL_TOKEN.fullmatch(text))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_Note = Callable[[str, int], object]  # called with each hidden value and the secrecy of its name


def _ignore(_value: str, _level: int) -> None:
    return


def hide_in_url(text: str, note: _Note = _ignore) -> str:
    """Hide passwords and tokens before the host in URLs, and tokens with well-known prefixes."""

    def login(match: re.Match[str]) -> str:
        user, password = match["user"], match["password"]
        alone = not password or password == "x-oauth-basic"  # noqa: S105 - GitHub's placeholder beside a token
        web = match["scheme"].lower().endswith(("http://", "https://"))
        hide_user = user and ((alone and web) or len(user) >= 20)  # noqa: PLR2004 - a token, not a name
        for value in (user if hide_user else "", password or ""):
            note(value, ANY)
        shown = HIDDEN if hide_user else user
        return f"{match['scheme']}{shown}{f':{HIDDEN}' if password else ''}@"

    def known(match: re.Match[str]) -> str:
        note(match[0], ANY)
        return HIDDEN

    if "://" in text:
        text = _URL_LOGIN.sub(login, text)
    return _KNOWN_FORM.sub(known, text)


def hide_in_text(text: str, note: _Note = _ignore) -> str:
    """Hide the secrets that a text contains in a known form."""

    def pair(match: re.Match[str]) -> str:
        sign, value = match["sign"], match["value"]
        quoted = sign[:1] in {'"', "'", "\\"} or match["before"][-1:] in {"{", ","}
        level = secrecy(match["name"])
        bare = value.strip("\\\"'")
        if not ("=" in sign or quoted) or not is_secret_value(level, bare):
            return match[0]
        note(bare, level)
        return match[0][: match.start("value") - match.start()] + value.replace(bare, HIDDEN)

    def header(match: re.Match[str]) -> str:
        for word in match["value"].split():
            note(word, TEXT)
        return f"{match['name']}{match['sign']}{HIDDEN}"

    text = hide_in_url(text, note)
    if "=" in text or ":" in text:
        text = _HEADER.sub(header, _PAIR.sub(pair, text))
    return text


def hide_in_command(arguments: Iterable[str], note: _Note = _ignore) -> list[str]:
    """Hide the values of secret options: `--token x`, `--token=x`, `+auth.token=x`, `AUTH.TOKEN x`."""
    shown: list[str] = []
    expected, many = OPEN, False  # secrecy of the next word; whether the option takes several words
    for argument in arguments:
        option = argument.startswith("-") and not _is_number(argument)
        name, equals, value = argument.partition("=")
        level = secrecy(*name.split("."))
        if expected and not option and is_secret_value(expected, argument):
            note(argument, expected)
            shown.append(HIDDEN)
            expected = expected if many else OPEN
            continue
        if equals and re.fullmatch(r"[\w.+~/-]+", name) and is_secret_value(level, value):
            note(value, level)
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(hide_in_text(argument, note))
        bare = level == ANY and re.fullmatch(r"[A-Za-z_][\w.]*", name) is not None
        expected = level if not equals and (option or bare) else OPEN
        many = name.lower().endswith("s")
    return shown


def hide_in_values(value: object, path: tuple[str, ...] = (), note: _Note = _ignore) -> object:
    """Hide secrets in plain data, by names and by the form of texts; other values stay the same objects."""
    if isinstance(value, Mapping):
        label = value.get("name", value.get("key"))
        labelled = label if isinstance(label, str) and secrecy(label) else None
        return {
            name: hide_in_values(item, (*path, labelled if labelled and name == "value" else str(name)), note)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        texts = all(isinstance(item, str) for item in value)
        if texts and not secrecy(*path) and (len(value) == 2 or any(item[:1] == "-" for item in value)):  # noqa: PLR2004 - name and value
            return hide_in_command(value, note)
        return [hide_in_values(item, path, note) for item in value]
    level = secrecy(*path)
    if is_secret_value(level, value):
        note(str(value), level)
        return HIDDEN
    return hide_in_text(value, note) if isinstance(value, str) else value
