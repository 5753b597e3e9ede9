"""NVIDIA's Nsight tools: what each release supports, and its command lines. Pure data and functions.

The agent drives the tools with these command lines, and ``assay metrics`` prints them for people.
"""
