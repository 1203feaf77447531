"""Offset indexes: of MMIDIDX files, of Lhotse and of NeMo."""
