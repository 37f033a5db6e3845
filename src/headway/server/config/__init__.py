"""The config file, and the broker that it describes."""

from headway.server.config import host_limits
from headway.server.config.assembly import make_broker
from headway.server.config.auth import PASSWORD_BYTES_MAX, Users, digest_of, hash_password, new_token
from headway.server.config.description import describe, describe_permissions, remarks
from headway.server.config.fields import Keep
from headway.server.config.linter import lint, uncovered_finding
from headway.server.config.reading import default_text, load_settings, parse_settings
from headway.server.config.settings import (
    HistorySettings,
    JournalTable,
    ListenerTable,
    RetainedTable,
    Settings,
    SourceTable,
    TelemetryTable,
    TopicTable,
    ViewTable,
)
from headway.server.config.views import tables_of

__all__ = [
    "default_text", "describe", "describe_permissions", "digest_of",
    "hash_password", "HistorySettings", "host_limits", "JournalTable", "Keep",
    "lint", "ListenerTable", "load_settings", "make_broker", "new_token", "parse_settings", "PASSWORD_BYTES_MAX",
    "remarks", "RetainedTable", "Settings", "SourceTable", "tables_of", "TelemetryTable", "TopicTable",
    "uncovered_finding", "Users", "ViewTable",
]
