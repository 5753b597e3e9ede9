"""Prometheus metrics of the daemons: the endpoint, its readers, the metrics that both programs share."""
