"""A folder with an exported journal: one file a day, and a manifest that says what of them counts.

The files are gzip; each commit adds a member to the newest one, syncs it, and only then replaces the
manifest. What stands behind the size that the manifest names was cut off in mid-write: it is cut away
when the next export begins. Before a file is made, the manifest says that it is being made: what else
stands under the name of one is somebody else's, and is never written over.

How it fails: a disk that refuses raises OSError; files that are not what the manifest says, Torn;
files named like ours that no manifest knows of, Failure.
"""

import fcntl
import hashlib
import os
import re
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from schemas import codec
from schemas.ids import LogId
from services.journal.lines import decode, encode
from services.log.stored import Stored
from services.runtime.failure import Exit, Failure
from services.runtime.files import read_if_there, write_atomically

FORMAT = 1
MANIFEST = "manifest.json"
_GZIP = 31
_LEVEL = 6
_READ_BYTES = 1 << 20
_DAY = 10
"""Characters of a date."""
_OURS = re.compile(r"(\d{4}-\d\d-\d\d|base-\d+)\.jsonl\.gz")


class Hash(Protocol):
    """Of lines, as they come."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Torn(Exception):
    """The folder's files do not hold what its manifest says."""


class Base(Struct, frozen=True):
    """The state at a sequence, for a journal that does not begin with its log."""

    name: str
    sequence: int
    documents: int
    sha256: str = ""
    """Of its lines, uncompressed; empty: not written yet."""


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
    sha256: str
    """Of the lines in them, uncompressed."""


class Manifest(Struct, frozen=True):
    """What the folder holds."""

    logs: tuple[LogId, ...] = ()
    """Oldest first: after a recovery a log has another id."""
    segments: tuple[Segment, ...] = ()
    files: tuple[File, ...] = ()
    begun: str = ""
    """A file that is being made; it does not count yet. Empty: none is."""
    format: int = FORMAT

    @property
    def last(self) -> int:
        """Sequence of the last event; 0: there is none."""
        return self.files[-1].last if self.files else 0

    @property
    def events(self) -> int:
        """How many."""
        return sum(file.events for file in self.files)

    @property
    def lacks(self) -> str:
        """Why the journal cannot be imported; empty: it can."""
        segment = self.segments[-1]
        if not segment.whole:
            return f"it begins at {segment.first}, and no state is kept from before"
        begins = segment.base.sequence if segment.base else segment.first
        return "" if self.last >= begins else f"it was cut off at {self.last}, before {begins}"


@contextmanager
def writing(path: Path) -> Generator["Folder"]:
    """By one export at a time: whoever comes second gets BlockingIOError."""
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _refuse_what_is_not_known(path)
        yield Folder(path)
    finally:
        os.close(lock)


def _refuse_what_is_not_known(path: Path) -> None:
    """An export begins its files anew where no manifest says what stands in them."""
    if (path / MANIFEST).exists():
        return
    if found := sorted(each.name for each in path.iterdir() if _OURS.fullmatch(each.name)):
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise _foreign(
            path, f"{', '.join(found[:3])}{more}", f"and no {MANIFEST} that knows of them"
        )


def _foreign(path: Path, names: str, unknown: str) -> Failure:
    return Failure(
        Exit.REFUSED,
        "foreign_files",
        f"{path} holds {names}, {unknown}",
        why="an export would write over them",
        steps=["flotilla journal export ANOTHER-FOLDER"],
    )


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
        self._hash: Hash = hashlib.sha256()
        """Of the newest file's lines, those that were added among them."""
        self._hashed = ""
        """Which file that is; empty: it has not been read yet."""

    def begin(self, log_id: LogId, segment: Segment, documents: Sequence[Stored]) -> None:
        """Events from `segment.first` on come next. `documents`: those of its base."""
        self.commit()
        self._note(self.manifest)  # No file of ours stands in a folder without one.
        if (base := segment.base) is not None:
            lines = b"".join(map(encode, documents))
            packed = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            content = packed.compress(lines) + packed.flush()
            self._make(base.name)
            write_atomically(self.path / base.name, content)
            base = replace(base, sha256=hashlib.sha256(lines).hexdigest())
            segment = replace(segment, base=base)
        self._note(replace(self.manifest, segments=(*self.manifest.segments, segment), begun=""))
        self.follow(log_id)

    def _make(self, name: str) -> None:
        """Raises Failure where somebody else's file has that name."""
        held = self.manifest
        file = self.path / name
        bases = {each.base.name for each in held.segments if each.base}
        known = {*bases, held.begun, *(each.name for each in held.files)}
        if name not in known and file.exists() and file.stat().st_size:
            raise _foreign(self.path, name, f"which its {MANIFEST} does not know of")
        self._note(replace(held, begun=name))

    def follow(self, log_id: LogId) -> None:
        """The journal goes on in this log."""
        if log_id not in self.manifest.logs:
            self._note(replace(self.manifest, logs=(*self.manifest.logs, log_id)))

    def add(self, stored: Stored) -> None:
        """To its day; to the last one where the server's clock went back. Counts from `commit` on.

        Raises Torn where the file that it goes to is not what was exported.
        """
        day = max(self._day, codec.rfc3339(stored.stamp)[:_DAY])
        if day != self._day:
            self.commit()
            self._day = day
        if self._pending is None:
            self._pending = File(f"{day}.jsonl.gz", stored.sequence, 0, 0, 0, "")
            self._go_on_hashing(self._pending.name)
        line = encode(stored)
        self._hash.update(line)
        self._packed += self._member.compress(line)
        self._pending = replace(
            self._pending, last=stored.sequence, events=self._pending.events + 1
        )

    def _go_on_hashing(self, name: str) -> None:
        if name == self._hashed:
            return
        self._hash, self._hashed = hashlib.sha256(), name
        for held in self.manifest.files:
            if held.name == name:
                self._hash = self._sum(held)

    def _sum(self, file: File) -> Hash:
        """Raises Torn."""
        made = hashlib.sha256()
        try:
            for text in _unpacked(self.path / file.name, file.size):
                made.update(text)
        except (OSError, zlib.error, ValueError) as error:
            raise Torn(f"{file.name} cannot be read: {error}") from error
        if made.hexdigest() != file.sha256:
            raise Torn(f"{file.name} does not hold what was exported")
        return made

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
        if held is None:
            self._make(added.name)
        _append(self.path / added.name, size, content)
        added = replace(added, size=size + len(content), sha256=self._hash.hexdigest())
        if held is None:
            self._note(replace(self.manifest, files=(*files, added), begun=""))
            return
        grown = replace(added, first=held.first, events=held.events + added.events)
        self._note(replace(self.manifest, files=(*files[:-1], grown)))

    def _note(self, manifest: Manifest) -> None:
        self.manifest = manifest
        content = msgspec.json.format(codec.encode(manifest), indent=1)
        write_atomically(self.path / MANIFEST, content + b"\n")

    def base(self, base: Base) -> list[Stored]:
        """Its documents. Raises Torn."""
        hashed = hashlib.sha256()
        lines = _lines(self.path / base.name, None, hashed)
        documents = [_read(base.name, line) for line in lines]
        if (len(documents), hashed.hexdigest()) != (base.documents, base.sha256):
            raise Torn(f"{base.name} does not hold the {base.documents} documents of the export")
        return documents

    def check(self, first: int) -> None:
        """All events from a sequence on, each in its place. Raises Torn."""
        begins = {segment.first for segment in self.manifest.segments}
        next_ = 0
        for file in self.manifest.files:
            if file.last < first:
                continue
            hashed, events = hashlib.sha256(), 0
            for line in _lines(self.path / file.name, file.size, hashed):
                found = _read(file.name, line).sequence
                if next_ and found != next_ and not (found > next_ and found in begins):
                    raise Torn(f"{file.name} holds {found} where {next_} is to stand")
                if not events and found != file.first:
                    raise Torn(f"{file.name} begins at {found}, not at {file.first}")
                events, next_ = events + 1, found + 1
            if (events, next_ - 1) != (file.events, file.last):
                raise Torn(
                    f"{file.name} holds {events} events to {next_ - 1}, "
                    f"not {file.events} to {file.last}"
                )
            if hashed.hexdigest() != file.sha256:
                raise Torn(f"{file.name} does not hold what was exported")

    def events(self, first: int) -> Iterator[Stored]:
        """From a sequence on, as `check` found them. Raises Torn."""
        for file in self.manifest.files:
            if file.last < first:
                continue
            for line in _lines(self.path / file.name, file.size):
                if (stored := _read(file.name, line)).sequence >= first:
                    yield stored


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


def _read(name: str, line: bytes) -> Stored:
    try:
        return decode(line)
    except ValueError as error:
        raise Torn(f"{name}: {error}") from error


def _lines(path: Path, size: int | None = None, hashed: Hash | None = None) -> Iterator[bytes]:
    """Of the first `size` bytes; None: of all. `hashed` is given what they hold."""
    rest = b""
    try:
        for text in _unpacked(path, path.stat().st_size if size is None else size):
            if hashed is not None:
                hashed.update(text)
            *lines, rest = (rest + text).split(b"\n")
            yield from lines
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
