"""NVIDIA's Nsight tools as pure data and functions: the options of a release, and command lines for it.

The agent drives the tools with these command lines, and ``assay metrics`` prints them for people.
"""
