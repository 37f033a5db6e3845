"""Keys of a terminal, by their names, without waiting for the end of a line."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from types import TracebackType

try:
    import termios
    import tty
except ImportError:  # on Windows there are none: the list is drawn, and Ctrl-C ends it
    termios = tty = None  # type: ignore[assignment]

SEQUENCES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down",
    "\x1bOC": "right", "\x1bOD": "left", "\x1b[5~": "pgup", "\x1b[6~": "pgdn", "\x1b[H": "home", "\x1b[F": "end",
    "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\x1bOP": "f1", "\x1b[11~": "f1",
    "\x1bOS": "f4", "\x1b[14~": "f4", "\x1b[17~": "f6", "\x1b[21~": "f10",
}  # fmt: skip
CHARS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x03": "ctrl-c", "\x1b": "esc"}
LONGEST = max(map(len, SEQUENCES))
READ_BYTES = 1024


def names(text: str) -> list[str]:
    """Returns the keys of what a terminal has sent at once; an unknown sequence is none."""
    found, at = [], 0
    while at < len(text):
        for size in range(min(LONGEST, len(text) - at), 1, -1):
            if (known := SEQUENCES.get(text[at : at + size])) is not None:
                found.append(known)
                at += size
                break
        else:
            if text[at] == "\x1b" and at + 1 < len(text) and text[at + 1] in "[O":
                at = _behind(text, at + 2)
                continue
            found.append(CHARS.get(text[at], text[at]))
            at += 1
    return found


def _behind(text: str, at: int) -> int:
    """Returns the place behind an unknown sequence."""
    while at < len(text) and not text[at].isalpha() and text[at] != "~":
        at += 1
    return at + 1


class Keys:
    """The keys of standard input while it is open. Where that is no terminal there are none."""

    def __init__(self) -> None:
        self._file: int | None = sys.stdin.fileno() if termios is not None and sys.stdin.isatty() else None
        self._before: list[object] = []
        self._woken, self._wakes = os.pipe()
        self._open = threading.Lock()
        self._closed = False

    def __enter__(self) -> Keys:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
            signal.signal(signal.SIGWINCH, lambda *_: self.wake())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        with self._open:
            self._closed = True
            os.close(self._woken)
            os.close(self._wakes)

    def wake(self) -> None:
        """Ends a ``wait``; from any thread, also when these keys are closed."""
        with self._open:
            if not self._closed:
                os.write(self._wakes, b"\0")

    def wait(self, seconds: float) -> list[str]:
        """Returns what was pressed, as soon as something is, or after so long, or when woken."""
        files = [self._woken, *([] if self._file is None else [self._file])]
        ready = select.select(files, [], [], seconds)[0]
        if self._woken in ready:
            os.read(self._woken, READ_BYTES)
        if self._file is None or self._file not in ready:
            return []
        data = os.read(self._file, READ_BYTES)
        if not data:  # the terminal is gone
            return ["ctrl-c"]
        return names(data.decode(errors="replace"))
