"""Plain sampling: random, stratified, systematic, the first instructions, one iteration."""
