"""Foreign files read as trees of settings, each with its line. Nothing here knows what a setting means."""

from headway.migration.formats.braces import read_braces
from headway.migration.formats.embedded import read_embedded
from headway.migration.formats.file import Bad, File, Includes, load
from headway.migration.formats.json import read_json
from headway.migration.formats.lines import read_lines
from headway.migration.formats.node import ITEM, Kind, Node, Where
from headway.migration.formats.xml import read_xml

__all__ = [
    "Bad", "File", "Includes", "ITEM", "Kind", "load", "Node", "read_braces", "read_embedded", "read_json",
    "read_lines", "read_xml", "Where",
]
