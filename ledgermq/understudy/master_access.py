"""Access to a master: the key with which questions to it are signed, and TLS at its remoting port.

Both are read once, when a process begins. The secret stands in its operator's file alone: neither
the folder of an understudy nor a command line has it.
"""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ledgermq.model.errors import ConfigError
from ledgermq.sessions.keys.tls_files import client_context

ACCESS_KEY_OPTION, CA_OPTION = "--access-key-file", "--ca-file"
KEY_FILE_SIZE_MAX = 4_096
_NAMES = ("accessKey", "secretKey")


@dataclass(frozen=True, slots=True)
class MasterAccess:
    """How who asks is known to a master, and knows it.

    Attributes:
        key: with which requests are signed; empty: they are not.
        secret: what makes the signature.
        tls: None: the connection is plain.
    """

    key: str = ""
    secret: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


def read_access(access_key_file: Path | None, ca_file: Path | None) -> MasterAccess:
    """Access by what the files say; None: without.

    Args:
        access_key_file: ``accessKey`` and ``secretKey`` in YAML, as in mqadmin's ``tools.yml``; its
            owner alone may read it.
        ca_file: certificates in PEM, of which one has signed the master's.

    Raises:
        ConfigError: a file cannot be read, others can read the secret, or it is no such file.
    """
    key, secret = ("", "") if access_key_file is None else _access_key(access_key_file)
    tls = None if ca_file is None else client_context(ca_file, setting=CA_OPTION)
    return MasterAccess(key, secret, tls)


def _access_key(path: Path) -> tuple[str, str]:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(KEY_FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(
            "access key not read", file=str(path), option=ACCESS_KEY_OPTION, reason=error.strerror
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "others can read or change the access key: chmod 600, and change the secret if others"
            " may have read it",
            file=str(path),
            mode=f"{stat.S_IMODE(mode):04o}",
        )
    if len(content) > KEY_FILE_SIZE_MAX:
        raise ConfigError("no access key: too large", file=str(path), limit=KEY_FILE_SIZE_MAX)
    try:
        # Every value is a text, also one of digits.
        document = yaml.load(content, Loader=yaml.BaseLoader)  # noqa: S506 - makes texts alone
    except (yaml.YAMLError, UnicodeDecodeError):
        # What is wrong with it would show a part of it.
        document = None
    found = [document.get(name) for name in _NAMES] if isinstance(document, dict) else []
    texts = [text for text in found if isinstance(text, str) and text]
    if len(texts) != len(_NAMES):
        raise ConfigError(
            "no access key: the file has accessKey and secretKey, each in a line as KEY: VALUE",
            file=str(path),
        )
    key, secret = texts
    return key, secret
