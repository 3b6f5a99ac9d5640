"""Object stores: buckets of S3 and of what speaks its protocol, with puts on condition."""
