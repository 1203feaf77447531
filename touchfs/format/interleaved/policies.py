"""Policies for items whose bytes cannot be found: what becomes of the item and of its sample."""

ERROR, WARN, DROP_ROW, DROP_SAMPLE = "error", "warn", "drop_row", "drop_sample"
ITEM_POLICIES = (ERROR, WARN, DROP_ROW, DROP_SAMPLE)
