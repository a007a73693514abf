"""Former name of `group_key`, for the one import of it that is left."""

from rla_client.database.compare.group_key import group_label, group_order, group_text

__all__ = ["group_label", "group_order", "group_text"]
