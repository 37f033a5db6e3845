"""Codecs: bytes in, commands out; effects in, bytes out. No I/O."""
