"""The storage-writer process: takes producers' frames, stamps them into the log, and keeps it."""
