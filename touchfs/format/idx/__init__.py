"""Index formats of other tools: MMIDIDX, Lhotse's, Energon's and NeMo's."""
