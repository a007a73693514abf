"""Redaction of secret values.

A value is secret by the name of its parameter, option or variable (`secrecy`), or inside a text by its
form: a password in a URL, `token=…`, `"api_key": "…"`, a token with a well-known beginning. What was found
secret that way, and has MIN_VERBATIM_CHARS, is also hidden wherever else it appears word for word.

`Secrets` hides at the one place where something about a run is put into words: parameters, the names of
folders, command lines, variables, text logs. The program itself keeps its true values. Each hidden value is
the marker HIDDEN.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rla_client.stream.param_values import plain_hyper_param

HIDDEN = "<hidden>"
MIN_VERBATIM_CHARS = 8  # shorter secrets are parts of harmless words
PLAIN_WORD_CHARS = 16  # below it, a text of lower-case letters may be a word such as `required`
OPEN, TEXT, ANY = 0, 1, 2  # secrecy of a name: none, of texts, of texts and numbers
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_VENDOR = (
    "openai|anthropic|wandb|huggingface|hf|azure|aws|gcp|google|github|gh|gitlab|slack|comet|neptune|stripe"
    "|twilio|sendgrid|mistral|cohere|gemini|deepseek|kaggle|discord|telegram|replicate|modal|clearml|llm"
)
_KEY = (
    "api|access|private|secret|signing|encryption|master|auth|session|ssh|service|account|license"
    "|subscription|deploy|shared|storage|admin|app|consumer|client"
)
_TOKENS = "sas|auth|oauth|access|api|bearer|refresh|session|security|personal|private|secret"
_STRONG_WORDS = (
    "passwords?|passwds?|passphrases?|passcodes?|pwd|secrets?|credentials?|creds?|apikeys?"
    rf"|(?:{_KEY}|{_VENDOR})_keys?|keys?_(?:{_VENDOR})|(?:{_TOKENS})_tokens?|(?:{_VENDOR}|devops|bitbucket|jira)_pats?"
)
_STRONG = re.compile(rf"(?:^|_)(?:{_STRONG_WORDS})(?=_|$)")
_STRONG_END = re.compile(rf"(?:^|_)(?:{_STRONG_WORDS})$")
_GLUED = re.compile(
    r"(?:password|passwd|passphrase|apikey|authkey|accesskey|privatekey|secretkey|clientsecret|credentials?"
    r"|(?:auth|access|api|github|gitlab|hf|wandb)token)s?\d*$"
)
_WEAK = re.compile(
    r"(?:^|_)(?:auth|oauth|authorization|authentication|cookies?|jwt|bearer|t?otp|dsn)(?=_|$)"
    rf"|(?:^|_)(?:pass|pw|webhooks?(?:_urls?)?|tokens?_(?:{_VENDOR})|(?:{_VENDOR})_tokens|token)$"
)
_NO_SECRET_BEFORE = re.compile(  # a token of a text, a pass over data
    r"(?:^|_)(?:bos|eos|pad|unk|cls|sep|mask|special|image|video|audio|start|stop|end|begin|next|first|last"
    r"|prev|previous|per|max|min|num|n|vocab|sub|target|action|state|reward|class|patch|register|think"
    r"|thinking|answer|tool|sot|eot|control|prompt|trigger|task)_token$"
    r"|(?:^|_)(?:forward|backward|n|num|single|multi|first|second|one|two|low|high|band|per|max|min|by|all)_pass$"
)
_HARMLESS_END = frozenset(
    """file files filename path paths dir dirs folder folders dim dims size sizes len length count counts num
    number type types kind kinds method methods mode modes name names policy level levels limit limits max min
    ttl expiry timeout env var vars variable variables prefix ratio rate weight weights cost reward loss embed
    embedding embeddings emb ids index url urls uri endpoint host port enabled required class cls backend
    provider server service user username format pattern manager store location sock socket command cmd helper
    field column label dropout layer layers""".split()  # noqa: SIM905 - fifty words
)
_NEUTRAL_END = re.compile(
    r"(?:_(?:\d+|v|value|values|str|string|text|plain|prod|dev|test|old|new|default))+$"
)
_COUNTED = re.compile(r"^(?:n|num|number|max|min|total|count)_")
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


def words_of(name: str) -> str:
    """A name as lower-case words: `--wandbAPIKey` is `wandb_api_key`."""
    return "_".join(_WORD.findall(name)).lower()


@lru_cache(maxsize=4096)
def secrecy(*path: str) -> int:
    """Whether what bears a name is a secret.

    Args:
        path: the name, behind the names of the dicts that it is in; dots and dashes part words too.

    Returns:
        OPEN: no. TEXT: if it is text. ANY: if it is text or a number.
    """
    if not path:
        return OPEN
    parts = [words_of(part) for part in path]
    whole = "_".join(part for part in parts if part)
    bare = _NEUTRAL_END.sub("", whole)
    if bare.rpartition("_")[2] in _HARMLESS_END and not bare.endswith(("webhook_url", "webhook_urls")):
        return OPEN
    glued = any(_GLUED.search(part.lower()) for part in re.split(r"[^A-Za-z0-9]+", path[-1]))
    ends = glued or any(_STRONG_END.search(_NEUTRAL_END.sub("", part)) for part in (*parts, whole))
    if ends:
        return TEXT if _COUNTED.match(parts[-1]) else ANY
    if _STRONG.search(bare) or secrecy(*path[:-1]):
        return TEXT
    return TEXT if _WEAK.search(bare) and not _NO_SECRET_BEFORE.search(bare) else OPEN


def is_secret_value(level: int, value: object) -> bool:
    """Whether a plain value is a secret, under a name of that secrecy."""
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


_Note = Callable[[str, int], object]  # is told each value that is hidden, and the secrecy of its name


def _ignore(_value: str, _level: int) -> None:
    return


def hide_in_url(text: str, note: _Note = _ignore) -> str:
    """Hide passwords and tokens before the host of URLs, and tokens of well-known forms."""

    def login(match: re.Match[str]) -> str:
        user, password = match["user"], match["password"]
        alone = not password or password == "x-oauth-basic"  # noqa: S105 - what GitHub wants beside a token
        web = match["scheme"].lower().endswith(("http://", "https://"))
        hide_user = user and ((alone and web) or len(user) >= 20)  # noqa: PLR2004 - a token, no name
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
    """Hide what is secret in a text by its form."""

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
    expected, many = OPEN, False  # secrecy of the next word, and whether further ones belong to it
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
    """Hide what is secret in plain data, by names and by the form of texts; the same objects elsewhere."""
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


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of one run. With `hides` False nothing is hidden.

    Attributes:
        values: texts that are hidden wherever they appear, the longest first.
        hides: AGENT.hide_secrets of the configuration.
    """

    values: tuple[str, ...] = ()
    hides: bool = True

    @classmethod
    def of(cls, parameters: Mapping[str, Any], *, hides: bool = True) -> Secrets:
        """Those of parameters, of this program's command line and of its environment."""
        if not hides:
            return cls(hides=False)
        found: set[str] = set()

        def note(value: str, level: int) -> None:
            word = value.isalpha() and value.islower() and len(value) < PLAIN_WORD_CHARS
            if len(value) >= MIN_VERBATIM_CHARS and value != HIDDEN and (level == ANY or not word):
                found.update(_spellings(value))

        hide_in_values(plain_hyper_param(parameters), (), note)
        hide_in_command(sys.orig_argv, note)
        hide_in_command(sys.argv, note)
        for name in list(os.environ):
            value = os.environ.get(name, "")  # other threads may take variables out
            level = secrecy(name)
            if is_secret_value(level, value) and not os.path.isabs(value):
                note(value, level)
        return cls(tuple(sorted(found, key=lambda value: (-len(value), value))))

    def verbatim(self, text: str) -> str:
        """Hide the known values in a text."""
        for value in self.values:
            if value in text:
                text = text.replace(value, HIDDEN)
        return text

    def text(self, text: str) -> str:
        """Hide the known values, and what is secret by its form."""
        return hide_in_text(self.verbatim(text)) if self.hides else text

    def command(self, arguments: Iterable[str]) -> list[str]:
        """A command line with its secrets hidden."""
        if not self.hides:
            return list(arguments)
        return [self.verbatim(argument) for argument in hide_in_command(arguments)]

    def value(self, name: str, value: object) -> object:
        """A parameter as it may be shown: itself, or plain data with its secrets hidden."""
        if not self.hides:
            return value
        plain = plain_hyper_param(value)
        shown = self._verbatim_in(hide_in_values(plain, tuple(name.split("."))))
        return value if shown == plain else shown

    def parameters(self, parameters: Mapping[Any, Any]) -> dict[Any, Any]:
        """Parameters as they may be written."""
        return {name: self.value(str(name), value) for name, value in parameters.items()}

    def _verbatim_in(self, plain: object) -> object:
        if isinstance(plain, str):
            return self.verbatim(plain)
        if isinstance(plain, Mapping):
            return {self.verbatim(str(name)): self._verbatim_in(item) for name, item in plain.items()}
        return [self._verbatim_in(item) for item in plain] if isinstance(plain, list) else plain


def _spellings(value: str) -> Iterable[str]:
    """A secret, and how it reads inside of JSON, a repr, or a URL; of several lines, each long one too."""
    import json  # noqa: PLC0415 - only where there are secrets
    from urllib.parse import quote  # noqa: PLC0415

    yield from (value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe=""), quote(value))
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        yield from (line for line in lines if len(line) >= PLAIN_WORD_CHARS and not line.startswith("-----"))
