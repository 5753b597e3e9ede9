"""What proves the product on a real GPU: ``python -m tests.gpu`` (docs/hardware.md)."""
