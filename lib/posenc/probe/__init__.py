"""The probe: n copies of one token in, 1 … n out."""
