"""Figures of campaigns for their pages: drawn in another process, kept by the content of their report."""
