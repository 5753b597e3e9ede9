"""Labels for launches without counters: encoding, classifiers, their vote."""
