"""Runs about idle queues: logs are deleted and shipped, and leaders change.

``python -m ledgermq.sim --idle --seed N --count M``. Three members (``sim/runs/idle_member.py``);
most messages go to one queue, and the others are used now and then. Files of the log are deleted
as soon as they may be; members are down until the others have deleted what they lack, are killed,
lose power or their queues. Checked: each message has the number behind the last one of its queue,
whoever leads; in the end all members have the same ends, and a check of their stores finds nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from ledgermq.formats.findings import Severity
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.repair.rebuild import rebuild
from ledgermq.sim.runs.idle_member import QUEUE_FILE_SIZE, IdleMember, Queue
from ledgermq.store.queues.queue_end import find_end
from ledgermq.store.store_directory import open_directory

STEPS = 60
QUEUES: tuple[Queue, ...] = tuple((f"t{n}", q) for n in range(3) for q in range(2))
HOT: Queue = ("hot", 0)
MEMORY = Path("/dev/shm")


class WrongNumberError(Exception):
    """A promise about numbers was broken."""


class IdleRun:
    """One run.

    Attributes:
        history: what happened.
        shipped, deleted, leaders: how often.
    """

    def __init__(self, seed: int) -> None:
        """Three empty members that run."""
        self.history: list[str] = []
        self.shipped = self.deleted = self.leaders = 0
        self.acknowledged: Counter[Queue] = Counter()
        self._random = Random(seed)
        self._root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self._members = [IdleMember(self._root / name, name) for name in ("n0", "n1", "n2")]
        self._leader = self._members[0]
        for member in self._members:
            member.start()

    def go(self) -> None:
        """Take all steps, then judge.

        Raises:
            WrongNumberError: a promise was broken.
        """
        try:
            steps = (
                *((self._load,) * 8),
                *((self._use,) * 3),
                *((self._delete,) * 4),
                *((self._fall,) * 2),
                *((self._rise,) * 2),
                *((self._lead,) * 2),
            )
            for _ in range(STEPS):
                self._random.choice(steps)()
            self._judge()
        finally:
            self.close()

    def close(self) -> None:
        """Delete everything."""
        for member in self._members:
            if member.is_up:
                with suppress(OSError):
                    member.stop(in_order=False)
        shutil.rmtree(self._root, ignore_errors=True)

    def _up(self) -> list[IdleMember]:
        return [member for member in self._members if member.is_up]

    def _others_up(self) -> list[IdleMember]:
        return [member for member in self._up() if member is not self._leader]

    def _load(self) -> None:
        self._append(HOT, self._random.randrange(10, 60))

    def _use(self) -> None:
        self._append(self._random.choice(QUEUES), self._random.randrange(1, 30))

    def _append(self, queue: Queue, count: int) -> None:
        """Acknowledged when another member has it."""
        number = self._leader.append(queue, count)
        self._tell(f"{self._leader.name} {queue} {number}+{count}")
        if number != self.acknowledged[queue]:
            raise WrongNumberError(
                f"{queue} goes on at {number}, and {self.acknowledged[queue]} were acknowledged"
            )
        followers = self._others_up()
        for member in self._random.sample(followers, self._random.randint(1, len(followers))):
            self._follow(member)
        self.acknowledged[queue] += count
        for member in self._up():
            member.dispatch(self._random.randrange(4))

    def _follow(self, member: IdleMember) -> None:
        if member.end.index_ + 1 < self._leader.first_index:
            # Files are offered once the table of ends is there.
            self._leader.dispatch(6)
            self.shipped += 1
            self._tell(f"{member.name} is shipped files by {self._leader.name}")
        member.follow(self._leader)

    def _delete(self) -> None:
        member = self._random.choice(self._up())
        member.dispatch(self._random.randrange(8))
        deleted = member.delete_old()
        self.deleted += deleted
        self._tell(f"{member.name} deletes {deleted}")
        member.dispatch(self._random.randrange(2))

    def _fall(self) -> None:
        """One that the others can do without, and that has not the only copy of anything."""
        if len(self._up()) < len(self._members):
            return
        member = self._random.choice(self._others_up())
        for one in self._others_up():
            self._follow(one)
        how = self._random.choice(("in order", "killed", "power lost"))
        member.stop(in_order=how == "in order", is_power_lost=how == "power lost")
        self._tell(f"{member.name} falls: {how}")
        harm = self._random.choice(("", "", "queues lost", "queues rebuilt"))
        if harm == "queues lost":
            member.lose_queues()
        elif harm == "queues rebuilt":
            rebuild(open_directory(member.paths.root), member.settings.store)
        self._tell(f"{member.name} {harm}")

    def _rise(self) -> None:
        for member in self._members:
            if not member.is_up:
                member.start()
                self._tell(f"{member.name} rises")

    def _lead(self) -> None:
        member = self._random.choice(self._others_up())
        self._follow(member)
        self._leader = member
        self.leaders += 1
        self._tell(f"{member.name} leads")

    def _judge(self) -> None:
        self._rise()
        for member in self._others_up():
            self._follow(member)
        for member in self._members:
            # A leader's writer asks before anybody has dispatched for it.
            member.dispatch(6)
            member.stop(in_order=True)
        for member in self._members:
            self._judge_member(member)

    def _judge_member(self, member: IdleMember) -> None:
        root = member.paths.root
        checked = check_store(root, CheckOptions())
        faults = [one.as_text() for one in checked.findings if one.severity is not Severity.NOTE]
        if faults:
            raise WrongNumberError(f"{member.name}: {faults[0]}")
        for queue, count in self.acknowledged.items():
            folder = member.paths.consume_queues / queue[0] / str(queue[1])
            end = find_end(folder, QUEUE_FILE_SIZE, whole_below=None).end if folder.is_dir() else 0
            if count != end:
                raise WrongNumberError(
                    f"{member.name}: {queue} ends at {end}, {count} were acknowledged"
                )

    def _tell(self, text: str) -> None:
        self.history.append(text)


def run_idle_seed(seed: int) -> tuple[str, IdleRun]:
    """What was broken, empty where nothing was, and the run."""
    run = IdleRun(seed)
    try:
        run.go()
    except Exception as error:  # whatever it is, the seed belongs to it
        return f"{type(error).__name__}: {error}".replace("\n", " "), run
    return "", run
