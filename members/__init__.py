"""The members of a Raft group: roster, memberships in the log, entries exchanged with peers."""
