"""A command on a terminal of its own: keys go in, and what a person would see comes out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pyte
from tests.interop.waiting import PATIENCE_S, until


class PtyScreen:
    def __init__(self, arguments: list[str], columns: int, lines: int) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._file, other = pty.openpty()
        self._size(columns, lines)
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway", *arguments], stdin=other, stdout=other, stderr=other,
            env=kept | {"TERM": "xterm-256color", "HEADWAY_ADMIN": ""}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is one
        )  # fmt: skip
        os.close(other)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def lines(self) -> list[str]:
        """The screen as it stands, after all that has been written to it."""
        while select.select([self._file], [], [], 0)[0]:
            try:
                data = os.read(self._file, 65_536)
            except OSError:  # the process has ended
                break
            if not data:
                break
            self._stream.feed(data)
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def press(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    def until(self, condition: Callable[[str], object], what: str) -> str:
        """Waits until the screen is so. Returns it."""
        try:
            until(lambda: condition(self.text), PATIENCE_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None
        return self.text

    def shows(self, *words: str) -> str:
        return self.until(lambda text: all(word in text for word in words), f"the screen shows {words}")

    def ended(self) -> int:
        until(lambda: self.lines and self.process.poll() is not None, PATIENCE_S, "it ends")
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._file)
