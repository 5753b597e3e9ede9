"""Notes on numbers: a code, its parameters and the sentence made from them."""
