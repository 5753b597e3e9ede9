"""Recordings without a server: inspect, select, score, classify, import."""
