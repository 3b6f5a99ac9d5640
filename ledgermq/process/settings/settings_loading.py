"""Loading of settings files from disk; ``model.config.settings_file`` decides what they mean."""

from __future__ import annotations

import logging
from pathlib import Path

from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_file import Problem, read_settings
from ledgermq.model.errors import ConfigError

logger = logging.getLogger(__name__)

TEXT_SIZE_MAX = 1024 * 1024
"""No settings are so long; a log file that was given by mistake is."""


def load_settings(path: Path) -> Settings:
    """The settings that the file at ``path`` holds; a former word of a value gets a warning.

    Raises:
        ConfigError: the file cannot be read, is not text, or holds what cannot be used.
    """

    def warn(one: Problem) -> None:
        logger.warning("%s:%d: %s: %s", path, one.line, one.key, one.text)

    return read_settings(read_text(path), name=str(path), remark=warn)


def read_text(path: Path) -> str:
    """Content of a text file that an operator named.

    Raises:
        ConfigError: it cannot be read, is not UTF-8, or is larger than ``TEXT_SIZE_MAX``.
    """
    try:
        return _content(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: byte {error.start}") from error


def read_properties_text(path: Path) -> str:
    """Content of a properties file that an operator named: as Java reads it, a character a byte.

    Raises:
        ConfigError: it cannot be read, or is larger than ``TEXT_SIZE_MAX``.
    """
    return _content(path).decode("latin-1")


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(TEXT_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > TEXT_SIZE_MAX:
        raise ConfigError(f"{path} is larger than {TEXT_SIZE_MAX} bytes: not a settings file")
    return content
