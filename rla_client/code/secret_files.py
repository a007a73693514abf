"""Secret files, recognized by name.

Code backups, archives of launchers, and the diff in environment.json leave these files out. The list follows
gitleaks, detect-secrets and GitHub's templates for .gitignore.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache

SECRET_FOLDERS = frozenset({
    ".ssh", ".gnupg", ".aws", ".azure", ".config", ".cache", ".kube", ".docker", ".password-store", ".gcloud",
    ".oci", ".kaggle", ".huggingface", ".envs", ".secrets", ".vault", ".databricks",
})  # fmt: skip
_DATA = r"\.(?:json|ya?ml|toml|ini|cfg|conf|config|txt|csv|env|xml|properties|db|sqlite3?|enc)"
_SECRET_FILES = (
    # environment variables
    r"\.env(?:\..+)?", r".+\.env", r"\.envrc(?:\..+)?", r"\.dev\.vars",
    # keys and key stores
    r"(?:.*[._-])?id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:_sk)?(?:[._-].*)?",
    r".*\.(?:pem|key|p8|pk8|p12|pfx|pkcs12|ppk|jks|keystore|kdb|kdbx|keychain|keytab|agekey|ovpn)",
    r"secring\..+", r"krb5cc_.+",
    # logins of tools
    r"\.netrc", r"_netrc", r"\.authinfo", r"\.pgpass", r"pgpass\.conf", r"\.my\.cnf", r"\.mylogin\.cnf",
    r"\.git-?credentials", r"\.pypirc", r"\.npmrc", r"\.yarnrc", r"\.htpasswd", r"\.htdigest", r"\.dockercfg",
    r"\.dockerconfigjson", r"\.s3cfg", r"\.boto", r"\.?passwd-s3fs", r"\.?rclone\.conf", r"\.databrickscfg",
    r"\.?clearml\.conf", r"\.comet\.config", r"\.terraformrc", r"terraform\.rc",
    r"\.vault[_-]?(?:pass|token).*",
    r"vault[_-]?pass(?:word)?(?:\.txt)?", r"\.?(?:msmtprc|esmtprc|fetchmailrc)", r"\.xauthority",
    r"kaggle\.json", r"kubeconfig", r".+\.kubeconfig", r"\.?sftp(?:-config)?\.json", r"\.ftpconfig",
    r"\.(?:bash|zsh|sh|python|psql|mysql|sqlite|node_repl|rediscli)_history",
    # credentials of clouds
    r".*service[_-]?account.*\.json", r"(?:.*[._-])?client[_-]?secrets?.*\.json",
    rf"(?:.*[._-])?credentials?(?:{_DATA})?", r"token\.(?:json|pickle)", r".+\.tfstate(?:\..+)?",
    r".*\.tfvars(?:\.json)?",
    # common names
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
_WITHIN = frozenset({("wandb", "settings")})  # (folder, name): secret only in this folder


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
    """Whether a relative path is a secret file, or lies below a secret folder."""
    parts = path.split("/")
    return any(map(is_secret_name, parts)) or tuple(parts[-2:]) in _WITHIN


def is_secret(path: str, root: str) -> bool:
    """Whether a file is secret by its own name, or by the target of a link.

    Args:
        path: absolute.
        root: absolute; folders above it do not count, as a project may lie below `.cache`.
    """
    parts = path.split(os.sep)
    if is_secret_name(parts[-1]) or tuple(parts[-2:]) in _WITHIN:
        return True
    if not os.path.islink(path):
        return False
    base = os.path.join(os.path.realpath(root), "")
    return is_secret_path(os.path.realpath(path).removeprefix(base))


def named_secrets(paths: Iterable[str], secrets: Iterable[str | os.PathLike[str]]) -> set[str]:
    """The paths that are one of the files `secrets`, by any name or link."""
    identities = {identity_of(path) for path in secrets} - {None}
    return {path for path in paths if identity_of(path) in identities} if identities else set()


def identity_of(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Device and inode of a file; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
