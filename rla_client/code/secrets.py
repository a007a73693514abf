"""Secrets among what is written about a run: which names are secret, and what stands in their place.

A value is secret by the name of its parameter, option or variable (`secrecy`), or inside a text by its
form: a password in a URL, `token=…`, `"api_key": "…"`, a token with a well-known beginning. What was found
secret that way, and has MIN_VERBATIM_CHARS, is also hidden wherever else it appears word for word.

`Secrets` hides at the one place where something about a run is put into words: parameters, the names of
folders, command lines, variables, text logs. The program itself keeps its true values. Each hidden value
is the marker HIDDEN. Whoever reads it back never takes the marker for the value: `restored` puts the own
value in its place, or tells the name; `refilled` does so for a command line.

Files that hold keys and passwords are known by the names that tools give them, and whatever keeps code
leaves them out. This is the only list of them: for the code backup of items, the archives of launchers, and
the diff in environment.json. It follows what gitleaks, detect-secrets and GitHub's templates for .gitignore
know.

What git has committed, unchanged, is not a secret and stays: it is in the repository for everybody to read.
Of a link that is the name that it points to, not the content, so links do not count. git is asked only
where such a name was found. A diff is what is not committed, so there the name alone decides.

`ask_git` changes nothing, and runs no hook or file monitor that a repository's settings name. Content filters
(`filter.*.clean`, as Git LFS has them) do run where git compares a file: without them it would report clean
files as changed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rla_client.stream.values import plain_hyper_param

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
        for name, value in os.environ.items():
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


DESCRIBED = "$typename"  # in the description of an object (experiment/recorded_parameters.py)


def is_hidden(stored: object) -> bool:
    """Whether a stored value is or has the marker of a secret in it."""
    return isinstance(stored, str) and HIDDEN in stored


def restored(stored: Any, own: Any, missing: list[str], name: str = "") -> Any:  # noqa: ANN401
    """Stored data with the own value in the place of each hidden one; itself where nothing is hidden.

    Args:
        stored: as it was read.
        own: of the program now, plain data or objects.
        missing: gets the dotted names of hidden values that `own` lacks. They are left out of their dict,
            and None in a list.
        name: of the whole.
    """
    if is_hidden(stored):
        if own is None:
            missing.append(name)
            return None
        return own
    if isinstance(stored, Mapping) and DESCRIBED in stored:
        return stored  # an object's attributes; nobody makes an object of them
    if isinstance(stored, Mapping):
        known = own if isinstance(own, Mapping) else plain_hyper_param(own)
        mine = known if isinstance(known, Mapping) else {}
        result: dict[Any, Any] = {}
        for key, value in stored.items():
            before = len(missing)
            found = restored(value, mine.get(key), missing, f"{name}.{key}" if name else str(key))
            if not (is_hidden(value) and len(missing) > before):
                result[key] = found
        return result if len(result) < len(stored) or _differs(result.values(), stored.values()) else stored
    if isinstance(stored, list | tuple):
        fits = isinstance(own, list | tuple) and len(own) == len(stored)
        items = [
            restored(value, own[number] if fits else None, missing, f"{name}[{number}]")
            for number, value in enumerate(stored)
        ]
        return items if _differs(items, stored) else stored
    return stored


def _differs(some: Iterable[object], others: Iterable[object]) -> bool:
    return any(one is not other for one, other in zip(some, others, strict=True))


def taken_over(stored: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Stored parameters for this program, and what to tell of those that it lacks ("": there are none)."""
    missing: list[str] = []
    found: dict[str, Any] = restored(stored, own, missing)
    if not missing:
        return found, ""
    return found, f"not kept, for they are secret: {', '.join(missing)}; give them with set_hyper_param"


def refilled(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """A stored command line with its hidden values taken from the environment.

    The variable is the option's name in capitals: WANDB_API_KEY for `--wandb-api-key`; RLA_ARGUMENT_<n>
    where the n-th argument (from 1) has no name; with _2, _3, … behind it for further values of an option.

    Returns:
        The arguments, and (argument, variable) of each that the environment lacks.
    """
    result: list[str] = []
    missing: list[tuple[str, str]] = []
    option, asked = "", Counter[str]()  # whose values come now; how many values of it have come
    for number, argument in enumerate(arguments, 1):
        head, equals, _ = argument.partition("=")
        if not is_hidden(argument):
            option = "" if equals else head
            result.append(argument)
            continue
        named = bool(equals) and HIDDEN not in head and "://" not in head
        name = head if named else option
        option = name if argument == HIDDEN else ""  # an option may have several values
        variable = words_of(name).upper() or f"RLA_ARGUMENT_{number}"
        asked[variable] += 1
        variable += f"_{asked[variable]}" if asked[variable] > 1 else ""
        value = environment.get(variable)
        if value is None:
            missing.append((name or argument, variable))
        whole = f"{head}={value}" if named else value
        result.append(argument if value is None else str(whole))
    return result, missing


SECRET_FOLDERS = frozenset({
    ".ssh", ".gnupg", ".aws", ".azure", ".config", ".cache", ".kube", ".docker", ".password-store", ".gcloud",
    ".oci", ".kaggle", ".huggingface", ".envs", ".secrets", ".vault", ".databricks",
})  # fmt: skip
_DATA = r"\.(?:json|ya?ml|toml|ini|cfg|conf|config|txt|csv|env|xml|properties|db|sqlite3?|enc)"
_SECRET_FILES = (
    # variables
    r"\.env(?:\..+)?", r".+\.env", r"\.envrc(?:\..+)?", r"\.dev\.vars",
    # keys and stores of keys
    r"(?:.*[._-])?id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:_sk)?(?:[._-].*)?",
    r".*\.(?:pem|key|p8|pk8|p12|pfx|pkcs12|ppk|jks|keystore|kdb|kdbx|keychain|keytab|agekey|ovpn)",
    r"secring\..+", r"krb5cc_.+",
    # what a tool logs in with
    r"\.netrc", r"_netrc", r"\.authinfo", r"\.pgpass", r"pgpass\.conf", r"\.my\.cnf", r"\.mylogin\.cnf",
    r"\.git-?credentials", r"\.pypirc", r"\.npmrc", r"\.yarnrc", r"\.htpasswd", r"\.htdigest", r"\.dockercfg",
    r"\.dockerconfigjson", r"\.s3cfg", r"\.boto", r"\.?passwd-s3fs", r"\.?rclone\.conf", r"\.databrickscfg",
    r"\.?clearml\.conf", r"\.comet\.config", r"\.terraformrc", r"terraform\.rc",
    r"\.vault[_-]?(?:pass|token).*",
    r"vault[_-]?pass(?:word)?(?:\.txt)?", r"\.?(?:msmtprc|esmtprc|fetchmailrc)", r"\.xauthority",
    r"kaggle\.json", r"kubeconfig", r".+\.kubeconfig", r"\.?sftp(?:-config)?\.json", r"\.ftpconfig",
    r"\.(?:bash|zsh|sh|python|psql|mysql|sqlite|node_repl|rediscli)_history",
    # what a cloud gives
    r".*service[_-]?account.*\.json", r"(?:.*[._-])?client[_-]?secrets?.*\.json",
    rf"(?:.*[._-])?credentials?(?:{_DATA})?", r"token\.(?:json|pickle)", r".+\.tfstate(?:\..+)?",
    r".*\.tfvars(?:\.json)?",
    # and what people call them
    rf"(?:.*[._-])?secrets?(?:[._-](?:local|dev|test|prod|production|staging))?{_DATA}", r"\.secrets?",
    rf"(?:.*[._-])?(?:api[_-]?keys?|passwords?|passwd|(?:access|auth|api)[_-]?tokens?)(?:{_DATA})?",
    rf"(?:.*[._-])?(?:hf|huggingface|wandb|github|gh|gitlab|openai|anthropic)[_-]?(?:token|key)(?:{_DATA})?",
)  # fmt: skip
_SECRET_FILE = re.compile("|".join(_SECRET_FILES), re.IGNORECASE)
_EXAMPLE = re.compile(
    r".*[._-](?:example|sample|template|tmpl|dist|defaults?|schema)s?(?:\.\w+)?", re.IGNORECASE
)
_OLDER = re.compile(r"(?:~|[._-](?:bak|old|orig|save|swp|swo|backup|copy|tmp))+$", re.IGNORECASE)
_SOURCES = (
    ".py", ".pyi", ".pyc", ".md", ".rst", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".png", ".jpg",
)  # fmt: skip
_WITHIN = frozenset({("wandb", "settings")})  # names that are only in this folder a secret
MAX_ASKED = 500  # names in one question to git; more of them are no project
GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
GIT_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
GIT_LIMIT_S = 2.0  # a repository on a slow network; then nothing counts as tracked


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a file or folder of this name holds secrets."""
    if name.endswith(_SOURCES):
        return False
    if name.lower() in SECRET_FOLDERS:
        return True
    bare = _OLDER.sub("", name)
    return _SECRET_FILE.fullmatch(bare) is not None and not _EXAMPLE.fullmatch(bare)


def is_secret_path(path: str) -> bool:
    """Whether a relative path names such a file, or one below such a folder."""
    parts = path.split("/")
    return any(map(is_secret_name, parts)) or tuple(parts[-2:]) in _WITHIN


def is_secret(path: str, root: str) -> bool:
    """Whether a file is one by its own name, or by what it links to.

    Args:
        path: absolute.
        root: absolute; folders above it do not count, for a project may lie below `.cache`.
    """
    parts = path.split(os.sep)
    if is_secret_name(parts[-1]) or tuple(parts[-2:]) in _WITHIN:
        return True
    if not os.path.islink(path):
        return False
    base = os.path.join(os.path.realpath(root), "")
    return is_secret_path(os.path.realpath(path).removeprefix(base))


def named_secrets(paths: Iterable[str], secrets: Iterable[str | os.PathLike[str]]) -> set[str]:
    """Of these files, those that are one of `secrets`, by whatever name or link."""
    identities = {identity_of(path) for path in secrets} - {None}
    return {path for path in paths if identity_of(path) in identities} if identities else set()


def identity_of(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Device and inode of a file, whatever its name; None where it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def committed_by_git(paths: Iterable[str], root: str) -> list[str]:
    """Of these files, and of those below these folders, the ones that git has as they are; absolute paths.

    What is changed or only staged is not among them, nor are links.
    """
    asked = list(paths)[:MAX_ASKED]
    tracked = tracked_by_git(asked, root)
    if not tracked:
        return []
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no")
    changed = ask_git(root, "--literal-pathspecs", *status, "--", *asked)
    top = ask_git(root, "rev-parse", "--show-toplevel")
    if changed is None or top is None:
        return []
    base = os.path.realpath(os.fsdecode(top).rstrip("\n"))
    dirty = {os.path.join(base, os.fsdecode(entry[3:])) for entry in changed.split(b"\0") if entry}
    return [path for path in tracked if not os.path.islink(path) and not _is_below(path, dirty)]


def tracked_by_git(paths: Iterable[str], root: str) -> list[str] | None:
    """Of the first MAX_ASKED of these files, and of those below these folders, the ones in git's index.

    None where there is a repository, and git gives no answer.
    """
    asked = list(paths)[:MAX_ASKED]
    if not asked or not _in_repository(root):
        return []
    listed = ask_git(root, "--literal-pathspecs", "ls-files", "-z", "--recurse-submodules", "--", *asked)
    if listed is None:
        return None
    return [os.path.normpath(os.path.join(root, os.fsdecode(name))) for name in listed.split(b"\0") if name]


def ask_git(root: str | os.PathLike[str], *words: str, limit_s: float = GIT_LIMIT_S) -> bytes | None:
    """What a git command in `root` prints; None when it fails or takes longer than `limit_s`."""
    try:
        done = subprocess.run(
            [*GIT, *words],
            cwd=root,
            env=os.environ | GIT_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _is_below(path: str, places: set[str]) -> bool:
    """Whether one of the places is this path, or a folder above it (a submodule)."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return any(real == place or real.startswith(f"{place.rstrip(os.sep)}{os.sep}") for place in places)


def _in_repository(folder: str) -> bool:
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
