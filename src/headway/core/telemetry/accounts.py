"""An account counts all records that were ever meant for a consumer, by their fate.

A record was *drained* (the consumer's outlet took it), was *skipped* (a policy, its age or its size left it out), or it
still waits (*lag*):

    offered = drained + skipped + lag

Offered, drained and skipped never decrease, in records or in bytes. Special cases:

- *Conflation*: records that passed in the lane count as lag until the state is read. The records then sent are drained,
  and the others are skipped when the pass ends. Their bytes are settled with the bytes sent in their place. A consumer
  that is conflated at intervals is offered the changes at the end of each interval.
- *Retained records, snapshots*, and records left over by a replaced subscription are offered when they are sent: how
  many come is not known exactly, and offered never decreases. The lag that policies judge has them (``Reader``).
- *A record that was half sent when the connection broke* is sent again as a whole, if the session lives on. The first
  half is then offered and drained twice.
- *A record that was sent and then given up* without an acknowledgement is drained and skipped: it is offered twice.
- *Members of a shared subscription* all have the lag of their group. A record that went to another member is skipped.
- *A record of a message group* in a queue counts for the group's owner alone while it waits, and as skipped for the
  others when the owner has it. If they had found it before the group had an owner, their offered decreases by it until
  then.
- *Consumers that poll* recorded topics: their bytes are known per batch of the journal, so the figures move late and in
  steps.
- *Discards*: a record that a look leaves out is skipped from then on, though the cursor passes it later. One that is
  the latest of its key, and then sent to a consumer that is conflated, is skipped and drained: it is offered twice.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.consumer import Subscription


class Account(NamedTuple):
    drained_records: int
    drained_bytes: int
    skipped_records: int
    skipped_bytes: int
    lag_records: int
    lag_bytes: int

    @property
    def offered_records(self) -> int:
        return self.drained_records + self.skipped_records + self.lag_records

    @property
    def offered_bytes(self) -> int:
        return self.drained_bytes + self.skipped_bytes + self.lag_bytes


def account(subscription: Subscription) -> Account:
    """Returns the account of a subscription that has not ended."""
    reader = subscription.reader
    return Account(*reader.drained(subscription), *reader.skipped(subscription), *reader.owed(subscription))
