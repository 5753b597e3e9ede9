"""A whole site under faults: two servers, PostgreSQL, a bucket, a balancer and Dask."""
