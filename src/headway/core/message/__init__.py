"""Messages as records and runs; their topics, filters and keys."""

from headway.core.message.deletes import DELETE, EVENT, OUT_OF_FOCUS, TOLD, is_delete, may_delete, says_delete
from headway.core.message.filter_trie import FilterTrie
from headway.core.message.job_patience import JOB_PATIENCE, job_patience_s, parse_patience
from headway.core.message.keys import (
    MAX_KEY_CHARS,
    NOT_JSON,
    TOLD_KEY,
    BadKey,
    KeyExtractor,
    compile_key,
    field_reader,
    resolve,
)
from headway.core.message.merge_patch import DELTA, MERGE, BadPatch, difference, merged, says_merge
from headway.core.message.message_groups import GROUP, GROUP_SEQUENCE, group_of
from headway.core.message.receipt_request import ReceiptRequest, receipt_request
from headway.core.message.record import (
    ACCEPTED,
    JOURNALED,
    NO_PROPERTIES,
    SCAN_BYTES,
    SCAN_MAX,
    TOPICS,
    TRANSIENT,
    Dialect,
    Durability,
    EncodedRun,
    Envelope,
    Gap,
    OwnProperties,
    Properties,
    Record,
    Run,
    Said,
    read_said_with,
    routing_key_of,
    text_bytes,
    topic_of,
)
from headway.core.message.topic_tree import TopicTree
from headway.core.message.topics import (
    MAX_TOPIC_BYTES,
    RENEW,
    TREE_LEVELS,
    BadTopic,
    covers,
    has_wildcard,
    is_deep,
    matcher,
    matches,
    overlaps,
    parse_shared_filter,
    quick_matcher,
    shape_of,
    spellings,
    table_name,
    validate_filter,
    validate_topic,
)
from headway.core.message.trace_context import TraceContext, parse_traceparent, sampled_context

__all__ = [
    "ACCEPTED", "BadKey", "BadPatch", "BadTopic", "compile_key", "covers", "DELETE", "DELTA", "Dialect",
    "difference", "Durability", "EncodedRun", "Envelope", "EVENT", "field_reader", "FilterTrie", "Gap", "GROUP",
    "group_of", "GROUP_SEQUENCE", "has_wildcard", "is_deep", "is_delete", "JOB_PATIENCE", "job_patience_s",
    "JOURNALED", "KeyExtractor", "matcher", "matches", "MAX_KEY_CHARS", "MAX_TOPIC_BYTES", "may_delete", "MERGE",
    "merged",
    "NO_PROPERTIES", "NOT_JSON", "OUT_OF_FOCUS", "overlaps", "OwnProperties", "parse_patience", "parse_shared_filter",
    "parse_traceparent", "Properties", "quick_matcher",
    "read_said_with", "receipt_request", "ReceiptRequest", "Record", "RENEW", "resolve", "routing_key_of", "Run",
    "Said", "sampled_context", "says_delete", "says_merge",
    "SCAN_BYTES", "SCAN_MAX", "shape_of", "spellings", "table_name", "text_bytes", "TOLD", "TOLD_KEY",
    "topic_of", "TOPICS", "TopicTree", "TraceContext", "TRANSIENT",
    "TREE_LEVELS", "validate_filter", "validate_topic",
]
