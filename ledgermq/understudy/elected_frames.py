"""HA protocol of masters that a controller elects, as bytes, and the connection that speaks it.

Big-endian (``AutoSwitchHAConnection``, ``AutoSwitchHAClient`` of RocketMQ 5.5.1):

    slave to master                   master to slave
    size  field                       size  field
    4     1: handshake                4     1: handshake
    2     1: begin with newest file   4     size of the body
    2     1: asynchronous learner     8     end of the log
    8     id of the slave             4     last epoch
                                      12 n  body: number (4) and start (8) of each epoch

    4     2: transfer                 4     2: transfer
    8     position                    4     size of the body; 0: a sign of life
                                      8     position of the body's first byte
                                      4     epoch of the body
                                      8     where that begins
                                      8     confirmed: all brokers in sync have all before it
                                      n     body: bytes of the CommitLog, cut anywhere

The first report asks for what follows its position. A sign of life may have any position, and the
first epoch. The last body of an epoch has the number of the next one.

**A learner must never count.** Confirmed is what all brokers in sync have, and a learner is none
of them. But where ``allAckInSyncStateSet`` is off, a master acknowledges what anybody reports, and
calls all that it has itself confirmed: who is elected next may lack it. There nothing is reported
but where the connection began, and nothing counts as confirmed.
"""

from __future__ import annotations

from struct import Struct

from ledgermq.formats.epoch_file import Epoch
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.ha_frames import FrameReader
from ledgermq.understudy.epochs import EPOCHS_MAX, checked_epochs
from ledgermq.understudy.ha_link import HaLink

STATE_HANDSHAKE, STATE_TRANSFER = 1, 2
GREETING = Struct(">ihhq")
HANDSHAKE = Struct(">iiqi")
HANDSHAKE_EPOCH = Struct(">iq")
TRANSFER = Struct(">iiqiqq")
ELECTED_REPORT = Struct(">iq")

NO_BROKER = -1
"""Id of the slave: no broker of a set has it."""


class ElectedFrameReader(FrameReader):
    """Takes the bytes behind a handshake.

    Attributes:
        confirmed: all before it is confirmed, as the last header says; -1: none has come.
        epochs: those of the bodies that have come, in their order, each once in a row.
    """

    HEADER = TRANSFER

    def __init__(self, position: int) -> None:
        """Nothing has come yet.

        Args:
            position: what was asked for.
        """
        super().__init__(position)
        self.confirmed = -1
        self.epochs: list[Epoch] = []

    def _begin(self, head: bytes) -> int:
        state, size, position, number, start, self.confirmed = TRANSFER.unpack(head)
        if state != STATE_TRANSFER:
            raise ProtocolError("the master sends what is no part of its log", state=state)
        if size:
            epoch = Epoch(number, start)
            if self.epochs[-1:] != [epoch]:
                self.epochs.append(epoch)
            self._checked(position, size)
        return int(size)


class ElectedLink(HaLink):
    """Open, and greeted, from its making on.

    Attributes:
        epochs: all of the master's, when it answered.
        master_end: where its log ended then.
    """

    def __init__(self, address: str, *, waits_for_all: bool) -> None:
        """Connect, and greet the master.

        Args:
            waits_for_all: it acknowledges what all brokers in sync have, whoever else reports.

        Raises:
            ProtocolError: it answers with something else.
            UnreachableError: nobody answers there.
            ConfigError: not an address.
        """
        super().__init__(address)
        self._waits_for_all = waits_for_all
        self._begun = 0
        self._elected = ElectedFrameReader(0)
        try:
            self._send(GREETING.pack(STATE_HANDSHAKE, 0, 1, NO_BROKER))
            state, size, self.master_end, _ = HANDSHAKE.unpack(self._exactly(HANDSHAKE.size))
            limit = EPOCHS_MAX * HANDSHAKE_EPOCH.size
            if state != STATE_HANDSHAKE or not 0 <= size <= limit or size % HANDSHAKE_EPOCH.size:
                raise ProtocolError(
                    "the master's handshake is none", state=state, size=size, limit=limit
                )
            body = self._exactly(size)
            self.epochs = checked_epochs(Epoch(*row) for row in HANDSHAKE_EPOCH.iter_unpack(body))
        except BaseException:
            self.close()
            raise

    @property
    def confirmed(self) -> int:
        """All before it is confirmed, as the master has said last; -1: nobody can tell."""
        return self._elected.confirmed if self._waits_for_all else -1

    def begin(self, position: int) -> None:
        self._frames = self._elected = ElectedFrameReader(position)
        self._begun = position
        self.report(position)

    def epochs_come(self) -> list[Epoch]:
        """Epochs of the bodies since this was asked last."""
        found = self._elected.epochs
        # The next body is compared with the last one.
        self._elected.epochs = found[-1:]
        return found

    def report(self, position: int) -> None:
        """Tell the master that this is alive, and what of ``position`` may count.

        Raises:
            UnreachableError: the connection has ended.
        """
        self.reported = max(min(position, self.confirmed), self._begun)
        self._send(ELECTED_REPORT.pack(STATE_TRANSFER, self.reported))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._received(size - len(data))
        return data
