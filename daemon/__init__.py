"""The processes: supervisor, raft, writer, dispatcher, broker."""
