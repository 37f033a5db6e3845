"""The disk, as the journal uses it: calls on files that a test can replace, and a cache of open files."""

from headway.store.journal.disk.file_cache import FileCache
from headway.store.journal.disk.files import REAL, Buffer, Files, RealFiles, opened, read_all, write_all, write_file

__all__ = [
    "Buffer", "FileCache", "Files", "opened", "read_all", "REAL", "RealFiles", "write_all", "write_file",
]
