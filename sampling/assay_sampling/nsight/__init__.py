"""NVIDIA's Nsight tools as pure data and functions: what a release knows, and the command lines it is given.

The agent drives the tools with these command lines, and ``assay metrics`` prints them for people.
"""
