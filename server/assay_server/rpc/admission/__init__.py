"""Before a call is answered: who calls, whether they may, and its entry in the audit log."""
