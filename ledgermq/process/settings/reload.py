"""Reload of settings (SIGHUP): checked once by the supervisor, then taken by all processes.

The supervisor reads the operator's file, keeps what needs a restart as it was, and publishes the
result as ``RUNTIME/settings.toml``; then it passes SIGHUP on. So a child never sees a file that
is wrong or half written, and all children take the same. A child that is restarted later is forked
with the new settings.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_change import changed_keys, reload_settings
from ledgermq.model.config.settings_file import write_settings
from ledgermq.model.errors import ConfigError
from ledgermq.model.events import Event
from ledgermq.process import log_lines
from ledgermq.process.settings.settings_loading import load_settings

logger = logging.getLogger(__name__)

LIVE = ("access.", "log.", "quotas.", "retention.", "scrub.", "supervision.", "transactions.")
"""Settings that are in force at once; the others, once a process is forked anew, which has them."""


def published_path(runtime_dir: Path) -> Path:
    """Where the settings in force are published, at the start and after a reload."""
    return runtime_dir / "settings.toml"


def reread(config_file: Path, running: Settings) -> Settings:
    """The settings to go on with; a file that cannot be used changes nothing, and says so."""
    try:
        read = load_settings(config_file)
    except ConfigError as error:
        logger.error("settings not re-read: %s", error, extra={"event": Event.SETTINGS_WRONG})
        return running
    settings, waiting = reload_settings(running, read)
    if waiting:
        logger.warning(
            "settings refused: they need a restart of the node",
            extra={"event": Event.SETTINGS_WAIT, "keys": ",".join(waiting)},
        )
    keys = changed_keys(running, settings)
    logger.info(
        "settings re-read",
        extra={"event": Event.SETTINGS_READ, "changed": ",".join(keys) or "nothing"},
    )
    later = [key for key in keys if not key.startswith(LIVE)]
    if later:
        logger.warning(
            "settings wait until the processes that use them are restarted",
            extra={"event": Event.SETTINGS_WAIT, "keys": ",".join(later)},
        )
    log_lines.set_level(settings.log.level)
    return settings


def publish(settings: Settings) -> None:
    """Put ``settings`` where the children take them from."""
    path = published_path(settings.listen.runtime_dir)
    fresh = path.with_suffix(".new")
    # Not through a link that somebody has put there: it is made anew, or not at all.
    fresh.unlink(missing_ok=True)
    with fresh.open("x") as file:
        file.write(write_settings(settings))
    fresh.rename(path)


def take_published(running: Settings) -> Settings:
    """Apply, in a child that got SIGHUP, what can be applied everywhere; the settings in force."""
    settings = load_settings(published_path(running.listen.runtime_dir))
    log_lines.set_level(settings.log.level)
    return settings
