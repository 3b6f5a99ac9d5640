"""The consensus core: messages in, effects out, time in ticks."""
