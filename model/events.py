"""Event numbers: the ``MESSAGE_ID`` of each event of weight in the journal and its catalog.

A log line about one of them carries it as ``extra={"event": Event.NODE_READY}``. The value is the
``MESSAGE_ID`` in the journal, 128 bits in hexadecimal: it never changes, whatever becomes of the
words of the line, and is never given to another event. ``packaging/systemd/ledgermq.catalog`` says
of each what happened, what it means and what to do (``journalctl --catalog``).
"""

from __future__ import annotations

from enum import StrEnum


class Event(StrEnum):
    """What happened, for programs: lines without an event are for people alone."""

    # Of the node as a whole.
    NODE_STARTS = "dbdd07e03b62453a88f62c93f6bd3924"
    """The supervisor has the locks and is about to start the processes."""
    NODE_READY = "f4d14448019c4c938a627ef61b4fe718"
    """The node can serve."""
    NODE_STOPS = "98024ec7d5e045ea99be325414295e20"
    """A stop was asked for, or the supervisor gives up; the reason says which."""
    NODE_STOPPED = "874238421fc84ac1ab7bfe3a0427bdd6"
    """All processes have ended; whether in order is in ``clean``."""
    NODE_REOPENED = "2625e7076f044e279b7fb6ebe8612380"
    """All processes end and begin again with another log, or another end of it."""
    WATCHDOG_WITHHELD = "9c72c27d5bbf41f695979a51f58e9dc3"
    """A process is silent, down, or nothing becomes durable: systemd is not fed."""
    WATCHDOG_FED = "36cd91929cf54fba9bfc349681344c10"
    """What kept the watchdog from being fed is over."""
    NODE_SERVES_NOT = "736b32095c7142ebb06489505ce5a193"
    """The node was started, and does not serve now; the reasons stand in the line."""
    NODE_SERVES = "10db07cb75d64c9ca1ab47889bbcb85b"
    """What kept the node from serving is over."""

    # Of its processes.
    PROCESS_DIED = "c54a37c438d044a9b633d849419d2f89"
    """A process ended that nobody had asked to."""
    PROCESS_HANGS = "67acf8123dd2409b97aa66eb51c5ff02"
    """A process gave no sign of life for too long, and is killed."""
    PROCESS_STUCK = "f9dea43b161f40dda3e82ef484ba7609"
    """A process did not stop in time, and is killed, or cannot be."""
    PROCESS_FAILED = "92be1c71c84f43b1b7d8ea9332bd0dbf"
    """Why a process ends itself: settings, storage, or a bug."""
    REQUEST_FAILED = "8c1f0d7a6be94c0f9a52b1d3e64f7c28"
    """A client's request has met a bug: it is refused, its connection ended, the rest goes on."""
    POISON_MESSAGE = "faa4432079f14ac6bc4ababb5f9d5c57"
    """A stored message that no filter can be evaluated for: it is passed over, and named."""

    # Of its settings.
    SETTINGS_READ = "b9ec15ba3974469584e467a5eb68c844"
    """SIGHUP: the file was read, and what may change has changed."""
    SETTINGS_WRONG = "9acc90dd3d8f4130848c24f97eebec28"
    """SIGHUP: the file cannot be used, and nothing has changed."""
    SETTINGS_WAIT = "2d2c2c475d394efaa0cafef8e68c624f"
    """SIGHUP: some keys wait for a restart."""
    SETTINGS_LATE = "a2046d7d067e4e2f908de3315b5708d5"
    """SIGHUP: a process has not taken the settings in time."""

    # Of the group.
    ROLE_CHANGED = "bbd2ad70802f47b69075ec991365bb2c"
    """The node follows, campaigns or leads from now on, in this term."""
    LEADERSHIP_HANDED_OVER = "b28aa276454c4b909b4c3870d7d6b94c"
    """A leader that stops has found a member that takes over."""
    HAND_OVER_FAILED = "2a1568cdea6b4bebaa8252bbcddfa67d"
    """A leader stops, and nobody could take over."""
    MEMBERSHIP_CHANGED = "956dbece9ab24179b845188a7cbdd30e"
    """An entry of the log says who belongs to the group from there on."""
    PEER_REFUSED = "4efabe3f2cb14976abe48683bd358979"
    """Somebody was not let in by this node."""
    PEER_ADMITTED = "91f87d295c514fd68db891fe6072b0cb"
    """A member that was refused before is let in."""
    REFUSED_BY_PEER = "7ea75d921a794eb1a0e270c43fe9b862"
    """Another member does not let this node in."""

    # Of its disk.
    DISK_FULL = "5397124e13cd4baa806237f5d83f3e8e"
    """Producers are refused; what is stored can be read."""
    DISK_HAS_ROOM = "2e48c394f0fb4c5faf56948ab1735ffb"
    """Producers are served again."""
    DISPATCH_STARVED = "ce39da7705134504b8313604fce718bf"
    """Messages are stored, and come to their queues when there is space."""
    DISPATCH_GOES_ON = "cbba5fbfeb454d039b87a4f7d86efa5d"
    """There is space again, and dispatch goes on."""
    DISK_SICK = "00f3e9266d124d139a24523437e6cb6d"
    """Nothing becomes durable: this member leads only where no other one could."""
    DISK_WELL = "b65e150e19294ac19e8f38f3cf531f72"
    """The disk, or the writer, makes progress again."""
    ARCHIVE_PASSED = "3f0e5f7ab7d94c0c8d3a5c0e4a1b6d27"
    """Old messages are deleted although an archive lacks them: it was waited for long enough."""
    RETENTION_HELD = "d1c5dac5cdea4cd1ae24fe7222304829"
    """Old files are kept for a reason that the line names, and space is wanted."""

    # Of its log and what is made from it.
    LOG_RECOVERED = "93ee1ac0e6e4477e992c20d486248ad6"
    """How far the log goes after a start."""
    LOG_LOST_ENTRIES = "3f7ddf8ca45d485cbcbe8f39df37e461"
    """The log ends before what was in it once."""
    LOG_CUT = "eb557da555cb4e5ab44074511432cf15"
    """Entries that no majority ever had were taken back."""
    LOG_NOT_DURABLE = "d62f32acf31148a785b0e5756da64ab7"
    """A sync failed; the process ends, for the page cache cannot be trusted."""
    LOG_DAMAGED = "1ee2cba0d330402cac5dc47e3bef5848"
    """Bytes of the log are not what was written."""
    LOG_REPAIRED = "30cfdc328d464fdf974f76db9d517236"
    """A damaged place has again what was written."""
    LOG_STAYS_DAMAGED = "3428aa5b4dbc4e9f8ff8e3c7e887f12a"
    """Nobody has what a damaged place lacks."""
    LOG_COMPLETE = "dc1085dd905a477e84ecfaf2afe755b3"
    """The log has again what it had lost."""
    LOG_REPLACED = "2855faa1549c46e39b87631e79cfd01d"
    """The leader's log took the place of this member's."""
    QUEUES_REPAIRED = "bc5a0034f6334322b5de5a7a29182a15"
    """Queues or the index differed from the log, and are put right."""
    KEPT_ASIDE = "afb5463c8ef84e0fad2c458ef52c7349"
    """A file that cannot be used was moved to ``ledgermq/set-aside``."""
    MESSAGES_NOT_DISPATCHED = "af3a7abb87244f09bb4f5d9205542871"
    """Records of the log are in no queue."""

    # Of the broker's services.
    TABLES_HELD_UP = "1947c76d61a84c74b29e684b7fff986d"
    """The broker's tables cannot take what is in the log."""
    NEWER_VERSION_NEEDED = "3d9325e9c2154df388832891fb27c9e9"
    """The log has what only a newer version understands."""
    TRANSACTIONS_HELD_UP = "f60c0db7dc65497e88db96ce00a63b0e"
    """Half messages cannot be read."""
    TIMERS_HELD_UP = "7a8fb4dde42a49bf81f68e799a219a3c"
    """Messages that wait for their time cannot be read."""
    HALF_MESSAGES_DISCARDED = "8769a6de1a0b4df88aec34fe82c4dd00"
    """Nobody said how transactions ended; their messages are put aside."""
    OFFSETS_NOT_WRITTEN = "354758acced94437a1487e4f91c4a260"
    """The files of group offsets, locks and moves cannot be written."""
    CLIENT_REFUSED = "4e6113e66b584a1c9b32c698b7469f72"
    """A client's key is no user's."""
    ADMIN_ACT = "820cd3f4fe614ae6acaaf02fe57c58ad"
    """An admin changed something, or was refused."""
