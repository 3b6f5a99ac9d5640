"""Settings of a master, for who follows it: what it must be, and what a node on its log has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ledgermq.conversion.understudy_note import UnderstudyNote
from ledgermq.model.config.broker_conf import Translation, read_properties, translate_broker_conf
from ledgermq.model.config.broker_conf_keys import TRANSLATED
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.errors import ConfigError
from ledgermq.understudy.elected_master import elected_by
from ledgermq.understudy.master_access import MasterAccess
from ledgermq.understudy.master_questions import MasterQuestions, MasterSettings

_ACCOUNTS = ("aclEnable", "authenticationEnabled")
"""Switches of RocketMQ 4 and 5, by which a master lets in none but its accounts."""

_ELECTION = ("enableControllerMode", "controllerAddr")

_ROLE, _REPLICAS = "brokerRole", "inSyncReplicas"

_NOT_OF_THE_STORE = frozenset({"dLegerGroup", "dLegerSelfId", "dLegerPeers", "preferredLeaderId"})
MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
_MODES = {
    "enableDLegerCommitLog": "a DLedger group, whose members follow one another in another way:"
    " move its directories (ledgermq migrate)",
    "duplicationEnable": "a broker that duplicates its log by itself",
    "enableLmq": "a broker with light queues, whose offsets it does not tell",
}


def look_at_master(master: str, remoting: str, access: MasterAccess) -> UnderstudyNote:
    """Note of a folder that is to follow a master; nothing is changed, here or there.

    Args:
        master: host and port where it waits for slaves.
        remoting: host and port of its clients.
        access: how it lets in who asks there.

    Raises:
        ConfigError: it is none that can be followed; says why.
        UnreachableError: nobody answers.
        ProtocolError: it refuses a request.
    """
    questions = MasterQuestions(remoting, access)
    try:
        text = questions.settings()
        version = questions.reach().version
    finally:
        questions.close()
    told = MasterSettings(text)
    check_mode(told, remoting)
    size = told.number("mappedFileSizeCommitLog")
    if not size:
        raise ConfigError(
            "the master does not tell how large a file of its log is",
            remoting=remoting,
            key="mappedFileSizeCommitLog",
        )
    rows = read_properties(text)
    kept = [
        f"{key}={rows[key].value}"
        for key in (*TRANSLATED, "timerWheelEnable", *_ACCOUNTS, *_ELECTION, _ROLE, _REPLICAS)
        if key in rows and key not in _NOT_OF_THE_STORE
    ]
    return UnderstudyNote(
        master=master,
        remoting=remoting,
        product=5 if version.startswith("V5") else 4,
        log_file_size=size,
        config="\n".join(kept),
    )


def check_mode(told: MasterSettings, remoting: str) -> None:
    """Refuse a broker that is neither a plain master, nor one of a set with a controller.

    Raises:
        ConfigError: it is another one; says what it is.
    """
    for key, what in _MODES.items():
        if told.is_true(key):
            raise ConfigError(
                f"the broker cannot be followed: it is {what}", remoting=remoting, key=key
            )
    role = told.text(_ROLE).strip()
    if role not in MASTER_ROLES and elected_by(told) is None:
        raise ConfigError(
            "the broker is no master: follow the master itself", remoting=remoting, role=role
        )


def has_accounts(note: UnderstudyNote) -> bool:
    """Whether the master let in none but its accounts, who are in no table that is followed."""
    told = MasterSettings(note.config)
    return any(told.is_true(key) for key in _ACCOUNTS)


def is_elected(note: UnderstudyNote) -> bool:
    """Whether a controller says who the master is."""
    return elected_by(MasterSettings(note.config)) is not None


def waits_for_slaves(note: UnderstudyNote) -> bool | None:
    """Whether the master acknowledges what a slave of it has, too, and nothing before.

    RocketMQ 5 counts itself among ``inSyncReplicas``, which is 1 unless it is set: a
    ``SYNC_MASTER`` of it waits for nobody then. None: its controller decides.
    """
    if is_elected(note):
        return None
    told = MasterSettings(note.config)
    if told.text(_ROLE).strip() != "SYNC_MASTER":
        return False
    return note.product < 5 or (told.number(_REPLICAS) or 1) > 1


def translation_of(note: UnderstudyNote, root: Path) -> Translation:
    """The master's settings as ours, for a node whose store is ``root``.

    Raises:
        ConfigError: they contradict one another.
    """
    found = translate_broker_conf(f"{note.config}\nstorePathRootDir={root}\n", name=note.remoting)
    store = replace(found.settings.store, path_root_dir=root)
    return found._replace(settings=replace(found.settings, store=store))


def section_of(note: UnderstudyNote, root: Path) -> StoreSection:
    """Settings of the store alone, by which queues and index are built as the master builds them.

    Raises:
        ConfigError: the master's settings contradict one another.
    """
    return translation_of(note, root).settings.store
