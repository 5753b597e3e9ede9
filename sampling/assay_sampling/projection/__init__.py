"""Projection within a launch: when its simulation may stop, and its projected cycles."""
