"""Records in an object store: the bucket, its check at the start, and the cache of files on this machine."""
