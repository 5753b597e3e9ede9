"""Work on recordings without a server: inspect, select, score, classify, import."""
