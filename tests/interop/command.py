"""`headway` as people call it, in a process of its own. It is a copy of one that has imported all (forked.py): a second
of work each was Python reading modules."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.interop.forked import Forked
from tests.interop.waiting import PATIENCE_S

from headway.cli import main


def headway(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Returns how it ended, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        said, errors = Path(folder, "said"), Path(folder, "errors")
        process = Forked(main, arguments, said, errors, environment)
        code = process.wait(PATIENCE_S)
        if code is None:
            process.kill()
            process.wait()
            raise AssertionError(f"after {PATIENCE_S:g} s: headway {' '.join(arguments)} has not ended")
        return subprocess.CompletedProcess(["headway", *arguments], code, said.read_text(), errors.read_text())
