"""The dispatcher process: builds ConsumeQueues and Index from what is committed."""
