"""How far the numbers of selections can be trusted: measured, printed, compared with stated bounds.

``make bench-fidelity`` runs every section and writes docs/fidelity.md. Each section is a module with a
function ``section(effort)``; ``__main__`` lists them.
"""
