"""The lab's certificate authority, join tokens, enrolment, renewal and revocation."""
