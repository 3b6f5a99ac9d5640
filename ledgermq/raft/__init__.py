"""The consensus core: messages in, effects out, time in ticks.

``core.RaftCore`` is one member of a group, without clock, socket or file. Whoever drives it hands
it events, and carries out the effects of each in their order before the next one. An event is a
call:

* ``tick`` when its ``deadline`` has come, ``receive`` for a message of a peer;
* ``log_ready`` when the writer of the log has recovered it, and then what that writer has done:
  ``writer_granted``, ``writer_revoked``, ``log_truncated``, ``entries_written``, ``entries_held``;
* what an operator, a reader or the disk wants: ``transfer_leadership``, ``propose_membership``,
  ``read_index``, ``disk_is_sick``, ``log_compacted`` and so on.

That is all there is to driving it:

>>> def drive(core, events, storage, writer, peers, clients):
...     while events:
...         effects = events.popleft()()
...         if effects.persist is not None:
...             storage.save(effects.persist)  # durable before anybody hears of it
...         if effects.revoke:
...             writer.revoke()  # → core.writer_revoked
...         if effects.truncate is not None:
...             writer.cut(effects.truncate)  # → core.log_truncated
...         if effects.grant is not None:
...             writer.grant(effects.grant)  # → core.writer_granted
...         if effects.propose is not None:
...             writer.stamp(effects.propose, b"")  # → core.entries_written, core.entries_held
...         if effects.propose_membership is not None:
...             writer.stamp(core.term, effects.propose_membership)  # core.membership_appended
...         if effects.append is not None:
...             writer.append(effects.append)  # → core.entries_held
...         for peer, message in effects.send:
...             peers.send(peer, message)
...         requests = [*effects.replicate]
...         for request in requests:
...             entries = storage.read(request)
...             after = core.replicated(request, entries.last, entries.size)
...             for peer, message in after.send:
...                 peers.send(peer, message, entries)
...             requests += after.replicate
...         for shipment in effects.ship_files:
...             peers.offer_files(shipment)  # → core.log_replaced, at the peer
...         if effects.commit is not None:
...             clients.acknowledge(effects.commit)
...         for answer in effects.reads:
...             clients.answer(answer)
...         if effects.leader is not None:
...             clients.tell(effects.leader)
...         for note in effects.notes:
...             print(note)

What the writer has done is an event like any other; an in-memory one may append it to ``events`` at
once. The real loop is that of ``raft_node.raft_process``, whose writer is another process. What
messages mean stands in ``messages``, what effects mean in ``effects``; the rules of Raft are in
``follower``, ``candidate`` and ``leader``.
"""
