"""What a broker does before it reads its config, done once for all the copies that tests start (forked.py): its modules
are imported. Each copy collects garbage when it starts, and passes over these."""

from __future__ import annotations

import gc

import headway.cli.app
import headway.cli.serve
import headway.server.main  # noqa: F401

gc.collect()
gc.freeze()
