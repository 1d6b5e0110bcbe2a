"""Operations by family: declarations, shape rules, and the functions that programs call."""
