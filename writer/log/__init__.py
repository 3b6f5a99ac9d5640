"""The writer's log: opened, appended under the put lock, flushed, deleted when old."""
