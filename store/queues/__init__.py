"""ConsumeQueues and the dispatch that builds them, with their ends and checkpoints."""
