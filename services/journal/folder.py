"""A folder with an exported journal: one file a day, and a manifest that says what of them counts.

The files are gzip; each commit adds a member to the newest one, syncs it, and only then replaces the
manifest. What stands behind the size that the manifest names was cut off in mid-write: it is cut away
when the next export begins.

How it fails: a disk that refuses raises OSError; files that are not what the manifest says, Torn.
"""

import fcntl
import os
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from schemas import codec
from schemas.ids import LogId
from services.journal.lines import decode, encode
from services.log.stored import Stored
from services.runtime.files import read_if_there, write_atomically

FORMAT = 1
MANIFEST = "manifest.json"
_GZIP = 31
_LEVEL = 6
_READ_BYTES = 1 << 20
_DAY = 10
"""Characters of a date."""


class Torn(Exception):
    """The folder's files do not hold what its manifest says."""


class Base(Struct, frozen=True):
    """The state at a sequence, for a journal that does not begin with its log."""

    name: str
    sequence: int
    documents: int


class Segment(Struct, frozen=True):
    """Events without a gap, from `first` to where the next segment or the journal ends."""

    first: int
    base: Base | None
    """None: nothing came before `first`; or it is lost, and this cannot be imported."""
    whole: bool
    """Whether it can be imported."""


class File(Struct, frozen=True):
    """A day of LOG's clock."""

    name: str
    first: int
    last: int
    events: int
    size: int
    """Bytes that count."""


class Manifest(Struct, frozen=True):
    """What the folder holds."""

    logs: tuple[LogId, ...] = ()
    """Oldest first: after a recovery a log has another id."""
    segments: tuple[Segment, ...] = ()
    files: tuple[File, ...] = ()
    format: int = FORMAT

    @property
    def last(self) -> int:
        """Sequence of the last event; 0: there is none."""
        return self.files[-1].last if self.files else 0

    @property
    def events(self) -> int:
        """How many."""
        return sum(file.events for file in self.files)


@contextmanager
def writing(path: Path) -> Generator["Folder"]:
    """By one export at a time: whoever comes second gets BlockingIOError."""
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Folder(path)
    finally:
        os.close(lock)


class Folder:
    """To read, or, as made by `writing`, to write."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, Torn."""
        self.path = path
        self.manifest = _manifest(path)
        self._day = self.manifest.files[-1].name[:_DAY] if self.manifest.files else ""
        self._pending: File | None = None
        self._member = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._packed = bytearray()

    def begin(self, log_id: LogId, segment: Segment, documents: Sequence[Stored]) -> None:
        """Events from `segment.first` on come next. `documents`: those of its base."""
        self.commit()
        if segment.base is not None:
            packed = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            content = b"".join(packed.compress(encode(document)) for document in documents)
            write_atomically(self.path / segment.base.name, content + packed.flush())
        self._note(replace(self.manifest, segments=(*self.manifest.segments, segment)))
        self.follow(log_id)

    def follow(self, log_id: LogId) -> None:
        """The journal goes on in this log."""
        if log_id not in self.manifest.logs:
            self._note(replace(self.manifest, logs=(*self.manifest.logs, log_id)))

    def add(self, stored: Stored) -> None:
        """To its day; to the last one where the server's clock went back. Counts from `commit` on."""
        day = max(self._day, codec.rfc3339(stored.stamp)[:_DAY])
        if day != self._day:
            self.commit()
            self._day = day
        if self._pending is None:
            self._pending = File(f"{day}.jsonl.gz", stored.sequence, 0, 0, 0)
        self._packed += self._member.compress(encode(stored))
        self._pending = replace(
            self._pending, last=stored.sequence, events=self._pending.events + 1
        )

    def commit(self) -> None:
        """What was added counts once this returns."""
        if self._pending is None:
            return
        added, self._pending = self._pending, None
        content = bytes(self._packed) + self._member.flush()
        self._packed.clear()
        self._member = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        files = self.manifest.files
        held = files[-1] if files and files[-1].name == added.name else None
        size = 0 if held is None else held.size
        _append(self.path / added.name, size, content)
        if held is None:
            self._note(replace(self.manifest, files=(*files, replace(added, size=len(content)))))
            return
        grown = replace(
            held, last=added.last, events=held.events + added.events, size=size + len(content)
        )
        self._note(replace(self.manifest, files=(*files[:-1], grown)))

    def _note(self, manifest: Manifest) -> None:
        self.manifest = manifest
        content = msgspec.json.format(codec.encode(manifest), indent=1)
        write_atomically(self.path / MANIFEST, content + b"\n")

    def base(self, base: Base) -> list[Stored]:
        """Its documents. Raises Torn."""
        documents = list(_lines(self.path / base.name))
        if len(documents) != base.documents:
            raise Torn(f"{base.name} holds {len(documents)} of {base.documents} documents")
        return documents

    def events(self, first: int) -> Iterator[Stored]:
        """From a sequence on. Raises Torn, at the latest at the end of the file that is."""
        for file in self.manifest.files:
            if file.last < first:
                continue
            events, last = 0, 0
            for stored in _lines(self.path / file.name, file.size):
                events, last = events + 1, stored.sequence
                if stored.sequence >= first:
                    yield stored
            if (events, last) != (file.events, file.last):
                raise Torn(
                    f"{file.name} holds {events} events to {last}, not {file.events} to {file.last}"
                )


def _manifest(path: Path) -> Manifest:
    content = read_if_there(path / MANIFEST)
    if content is None:
        return Manifest()
    try:
        found = codec.decode(content, Manifest)
    except msgspec.DecodeError as error:
        raise Torn(f"{MANIFEST} cannot be read: {error}") from error
    if found.format != FORMAT:
        raise Torn(f"{MANIFEST} has format {found.format}, this version knows {FORMAT}")
    return found


def _append(path: Path, size: int, content: bytes) -> None:
    """Behind the first `size` bytes; what stands there instead was cut off in mid-write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        if file.seek(0, os.SEEK_END) < size:
            raise Torn(f"{path.name} is shorter than the {size} bytes that were exported")
        file.truncate(size)
        file.seek(size)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _lines(path: Path, size: int | None = None) -> Iterator[Stored]:
    """Of the first `size` bytes; None: of all."""
    rest = b""
    try:
        for text in _unpacked(path, path.stat().st_size if size is None else size):
            *lines, rest = (rest + text).split(b"\n")
            yield from map(decode, lines)
    except (OSError, zlib.error, ValueError) as error:
        raise Torn(f"{path.name} cannot be read: {error}") from error
    if rest:
        raise Torn(f"{path.name} ends within a line")


def _unpacked(path: Path, size: int) -> Iterator[bytes]:
    """Member after member. Raises ValueError where the file ends within one."""
    member = zlib.decompressobj(_GZIP)
    begun = False
    with path.open("rb") as file:
        while size > 0 and (packed := file.read(min(size, _READ_BYTES))):
            size -= len(packed)
            while packed:
                begun = True
                yield member.decompress(packed)
                packed = member.unused_data
                if member.eof:
                    member, begun = zlib.decompressobj(_GZIP), False
    if begun or size > 0:
        raise ValueError("it is cut off")
