"""Decoding of what samples hold: from a recording's own format to plain PCM."""
