"""Object stores: buckets of S3, of its protocol, and of Google, with puts on condition."""
