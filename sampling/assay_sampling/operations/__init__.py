"""Operations: launches added up by the call that made them, put in strata, and matched across GPUs."""
