"""One client: its session, its subscriptions, and what is in flight to it."""

from headway.core.consumer.channel import (
    ENDED,
    GIVEN_UP,
    PAUSED,
    REPLACED,
    Channel,
    Delivery,
    GrantedChannel,
    Life,
    Row,
    SessionLife,
)
from headway.core.consumer.connection import Outlet, Pace, PeerState, RightsSource
from headway.core.consumer.credit import NO_LIMIT, CountedWindow, Grant, Window
from headway.core.consumer.effects import (
    Cancelled,
    CloseChannel,
    CloseConsumer,
    DeadLetter,
    DeliveryFailed,
    Disconnect,
    Effect,
    Pause,
    PluginFailed,
    Resume,
    Revoked,
    Spill,
)
from headway.core.consumer.feed import NO_OBSERVER, Feed, FeedKey, LiveSource, Observer, SharedReader, Shares, Waiting
from headway.core.consumer.poll import ArchiveIndex, ArchiveLag, ConnectionlessOutlet, Poll
from headway.core.consumer.progress import Backfill, BackfillSource, Predicate, Skip, rest_skipped
from headway.core.consumer.reader import EVERY_RECORD, RESTING, Conflation, Mode, QueueMember, Reader
from headway.core.consumer.request import (
    NO_OPTIONS,
    NO_WILL,
    OPTIONS,
    PREFIX,
    ConnectRequest,
    LiveTerms,
    QueueTerms,
    SubscribeRequest,
    SubscriptionOptions,
    Use,
    Will,
    known_names,
    parse_options,
    read_options,
)
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Departed, Due, Subscription, due_of, is_patient, patience_for

__all__ = [
    "ArchiveIndex", "ArchiveLag", "Backfill", "BackfillSource", "Cancelled", "Channel", "CloseChannel", "CloseConsumer",
    "Conflation", "ConnectionlessOutlet", "ConnectRequest", "CountedWindow", "DeadLetter", "Delivery", "DeliveryFailed",
    "Departed", "Disconnect", "Due", "due_of", "Effect", "ENDED", "EVERY_RECORD", "Feed", "FeedKey", "GIVEN_UP",
    "Grant", "GrantedChannel", "is_patient", "known_names", "Life", "LiveSource", "LiveTerms", "Mode", "NO_LIMIT",
    "NO_OBSERVER", "NO_OPTIONS", "NO_WILL", "Observer", "OPTIONS", "Outlet", "Pace", "parse_options", "patience_for",
    "Pause", "PAUSED", "PeerState", "PluginFailed", "Poll", "Predicate", "PREFIX", "QueueMember", "QueueTerms",
    "read_options", "Reader", "REPLACED", "rest_skipped", "RESTING", "Resume", "Revoked", "RightsSource", "Row",
    "Session", "SessionLife", "SharedReader", "Shares", "Skip", "Spill", "SubscribeRequest", "Subscription",
    "SubscriptionOptions", "Use", "Waiting", "Will", "Window",
]
