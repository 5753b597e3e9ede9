"""Identities of agents and people: roles, keys, certificates, join tokens, and where one's own are kept."""
