"""What a broker and the bench's processes do first, done once for all the copies that tests start (forked.py): modules
are imported. Each copy collects garbage when it starts, and passes over these."""

from __future__ import annotations

import gc

import bench.workloads.every  # noqa: F401

import headway.cli.app
import headway.cli.serve
import headway.cli.shell
import headway.server.main
import headway.store.records  # noqa: F401  and with it pyarrow, which takes longer than all else in a start

gc.collect()
gc.freeze()
