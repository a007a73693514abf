"""Secrecy of the names of parameters, options or variables."""

from __future__ import annotations

import re
from functools import lru_cache

OPEN, TEXT, ANY = 0, 1, 2  # values of the name are: not secret; secret if texts; secret if texts or numbers
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
_NO_SECRET_BEFORE = re.compile(  # tokens of a text, passes over data
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


def words_of(name: str) -> str:
    """A name as lower-case words: `--wandbAPIKey` is `wandb_api_key`."""
    return "_".join(_WORD.findall(name)).lower()


@lru_cache(maxsize=4096)
def secrecy(*path: str) -> int:
    """Whether a value with this name is secret.

    Args:
        path: the name, preceded by the names of the dicts around it; dots and dashes also separate words.

    Returns:
        OPEN: no. TEXT: if it is a text. ANY: if it is a text or a number.
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
