"""Operations: what faults, kills, hostile programs and other people on the machine can do to a store and its user."""
