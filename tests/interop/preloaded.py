"""What a broker does before it reads its config, done once for all the copies that tests start (forked.py): its modules
are imported and the parser of selectors is built. Each copy collects garbage when it starts, and passes over these."""

from __future__ import annotations

import gc

import headway.cli.app
import headway.cli.serve
import headway.server.main  # noqa: F401
from headway.core.selector import prepare_selectors

prepare_selectors()
gc.collect()
gc.freeze()
