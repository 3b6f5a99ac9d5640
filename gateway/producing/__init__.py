"""Request codes of producers: messages, transactions, replies; the way to the writer."""
