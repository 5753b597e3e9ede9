"""An injector of faults: a lab of real processes over mutual TLS, disturbed at many moments."""
