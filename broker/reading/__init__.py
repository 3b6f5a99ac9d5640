"""The store as the broker may show it: queues and records up to what is dispatched."""
