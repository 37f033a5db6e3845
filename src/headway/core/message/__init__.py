"""What is published, and how it is named."""

from headway.core.message.keys import NOT_JSON, BadKey, KeyOf, compile_key, field_reader, walk
from headway.core.message.record import (
    FREE,
    KEPT,
    LOOKS_MAX,
    NO_PROPERTIES,
    PROMISED,
    TOPICS,
    Dialect,
    Envelope,
    Frames,
    Gap,
    Hold,
    Properties,
    Record,
    Run,
    key_of,
    topic_of,
)
from headway.core.message.topics import (
    TREE_LEVELS,
    BadTopic,
    Trie,
    covers,
    has_wildcard,
    is_deep,
    matcher,
    matches,
    overlaps,
    parse_share,
    table_name,
    validate_filter,
    validate_topic,
)
from headway.core.message.topictree import TopicTree

__all__ = [
    "BadKey", "BadTopic", "compile_key", "covers", "Dialect", "Envelope", "field_reader", "Frames", "FREE", "Gap",
    "has_wildcard", "Hold", "is_deep", "KEPT", "key_of", "KeyOf", "LOOKS_MAX", "matcher", "matches", "NO_PROPERTIES",
    "NOT_JSON", "overlaps", "parse_share", "PROMISED", "Properties", "Record", "Run", "table_name", "topic_of",
    "TOPICS", "TopicTree", "TREE_LEVELS", "Trie", "validate_filter", "validate_topic", "walk",
]
