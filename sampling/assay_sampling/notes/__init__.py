"""Notes: remarks that accompany numbers, each a code, its parameters and the sentence made from them."""
