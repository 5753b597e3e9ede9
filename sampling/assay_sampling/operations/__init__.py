"""Operations: launches summed by the call that made them, in strata, matched across GPUs."""
