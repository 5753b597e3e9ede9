"""Plain sampling: random, stratified, systematic, by light time, the first instructions, one iteration."""
