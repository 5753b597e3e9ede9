"""Leases: who runs which slice, the effects of an attempt's end, which slots rest."""
