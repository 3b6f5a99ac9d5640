"""A store's files: mapped log, ConsumeQueues, Index, checkpoints; writing, reading, recovery."""
