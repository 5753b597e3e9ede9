"""Other GPUs that selections are scored on: matched once, and methods judged by them."""
