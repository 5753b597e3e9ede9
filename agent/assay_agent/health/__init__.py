"""Lost GPUs: quarantine and return to service."""
