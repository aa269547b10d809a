"""Where the files of an uncompressed tar archive lie in it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dna_suite.errors import DnaError

BLOCK = 512
ZEROS = bytes(BLOCK)
FILES, FOLDERS, LONG = (b"0", b"\0", b"7"), (b"5",), (b"L", b"K", b"x", b"g")
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}


class Member(NamedTuple):
    """One file of an archive: its name, and where its bytes are."""

    name: str
    offset: int
    size: int


def list_members(path: Path) -> list[Member]:
    """The files of an archive in the order in which they stand there; folders are left out.

    Headers are read one by one, nothing between them; a hundredth of what `tarfile` needs, which reads archives with long names.

    Raises:
        DnaError: the archive is compressed, damaged or cut short, or a member is neither file nor folder or leads out of it.

    Source: POSIX.1-2017, pax, "ustar Interchange Format".
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as problem:
        raise DnaError(f"{path}: {problem.strerror}") from None
    try:
        refuse_compressed(path, os.pread(file, BLOCK, 0))
        members = list(walk_headers(path, file))
    finally:
        os.close(file)
    return [member._replace(name=inner_name(path, member.name)) for member in members]


def refuse_compressed(path: Path, start: bytes) -> None:
    """Refuse an archive that begins as compressed data does.

    Raises:
        DnaError: with the compression's name.
    """
    for mark, name in COMPRESSED.items():
        if start.startswith(mark):
            raise DnaError(f"{path}: compressed ({name}); shards are read at random and must be plain tar archives: unpack it")


def walk_headers(path: Path, file: int) -> Iterator[Member]:
    """The files of an archive with their names as stored.

    Args:
        path: for messages.
        file: descriptor.
    """
    total, place = os.fstat(file).st_size, 0
    while True:
        header = os.pread(file, BLOCK, place)
        if header == ZEROS:
            break
        if len(header) < BLOCK:
            raise DnaError(f"{path}: cut short: no end mark after {place} bytes")
        check_sum(path, header, place)
        kind = header[156:157]
        if kind in LONG:
            yield from walk_with_tarfile(path, file, place)
            return
        name, size = read_name(header), read_number(path, header[124:136])
        if kind in FILES and not name.endswith("/"):
            check_member(path, name, place + BLOCK + size, total)
            yield Member(name, place + BLOCK, size)
        elif kind not in FILES + FOLDERS:
            raise DnaError(f"{path}: member {name!r} is a link or a special file; shards hold files and folders")
        place += BLOCK + -(-size // BLOCK) * BLOCK
    check_end(path, file, place)


def walk_with_tarfile(path: Path, file: int, start: int) -> Iterator[Member]:
    """As `walk_headers`, from the header at byte `start` on, for archives with long names or extended headers."""
    total = os.fstat(file).st_size
    try:
        with tarfile.open(path, "r:") as archive:
            for entry in archive:
                # Headers before `start` were read already.
                if entry.isdir() or entry.offset < start:
                    continue
                if not entry.isreg() or entry.issparse():
                    raise DnaError(f"{path}: member {entry.name!r} is a link or a special file; shards hold files and folders")
                check_member(path, entry.name, entry.offset_data + entry.size, total)
                yield Member(entry.name, entry.offset_data, entry.size)
            check_end(path, file, archive.offset)
    except (tarfile.TarError, EOFError, ValueError) as problem:
        if isinstance(problem, DnaError):
            raise
        raise DnaError(f"{path}: damaged or cut short ({problem})") from None


def check_sum(path: Path, header: bytes, place: int) -> None:
    """Refuse a header whose sum of bytes is not the one stored in it.

    Raises:
        DnaError: with the place of the header.
    """
    field = header[148:156]
    try:
        right = int(field.strip(b" \0"), 8) == sum(header) - sum(field) + 8 * ord(" ")
    except ValueError:
        right = False
    if not right:
        raise DnaError(f"{path}: damaged at byte {place}" if place else f"{path}: not a tar archive")


def read_name(header: bytes) -> str:
    """The name of a member."""
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return os.fsdecode(prefix + b"/" + name if prefix else name)


def read_number(path: Path, field: bytes) -> int:
    """A number in octal digits, or in the base of 256 that large ones have."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise DnaError(f"{path}: damaged: {field!r} is no size") from None


def check_member(path: Path, name: str, end: int, total: int) -> None:
    """Refuse a member that ends beyond the archive.

    Raises:
        DnaError: with both numbers.
    """
    if end > total:
        raise DnaError(f"{path}: cut short: {name!r} ends at byte {end}, the file has {total}")


def check_end(path: Path, file: int, place: int) -> None:
    """Refuse an archive without a block of zeros at its end, or with something behind it.

    Raises:
        DnaError: the archive was cut short between two members, or others were appended to it.
    """
    rest = os.pread(file, 20 * BLOCK, place)
    if len(rest) < BLOCK:
        raise DnaError(f"{path}: cut short: no end mark after {place} bytes")
    if rest.strip(b"\0"):
        raise DnaError(f"{path}: something stands behind its end mark at byte {place}; joined archives are read one by one only")


def inner_name(path: Path, name: str) -> str:
    """A member's name as a path below the archive's folder, without empty parts.

    Raises:
        DnaError: it is absolute or leads out.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts:
        raise DnaError(f"{path}: member {name!r} leads out of the archive's folder")
    return "/".join(parts)
