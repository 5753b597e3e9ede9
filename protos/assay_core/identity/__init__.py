"""Identities of agents and people: roles, keys, certificates, join tokens, and credential folders."""
