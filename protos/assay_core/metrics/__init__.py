"""Metrics of the daemons for Prometheus: the endpoint, who may read it, and what both programs measure."""
