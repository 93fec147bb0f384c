#!/usr/bin/env python3
"""Gives every symbol that a static library defines hidden visibility, so that a shared library into which it is linked
exports none of them: what the linker option --exclude-libs does, for linkers that lack it.

    scripts/hide-symbols.py IN.a OUT.a
"""
import struct
import sys

MAGIC = b"!<arch>\n"
SYMTAB, UNDEFINED, LOCAL, HIDDEN = 2, 0, 0, 2


def hide(member):
    """An ELF64 object, little endian (gABI, chapter 4)."""
    if member[:6] != b"\x7fELF\x02\x01":
        return
    sections, = struct.unpack_from("<Q", member, 0x28)
    size, count = struct.unpack_from("<HH", member, 0x3A)
    for at in range(sections, sections + size * count, size):
        kind, = struct.unpack_from("<I", member, at + 4)
        if kind != SYMTAB:
            continue
        offset, length = struct.unpack_from("<QQ", member, at + 0x18)
        for symbol in range(offset, offset + length, 24):
            info, other, section = struct.unpack_from("<BBH", member, symbol + 4)
            if info >> 4 != LOCAL and section != UNDEFINED:
                member[symbol + 5] = other & ~3 | HIDDEN


def main(source, target):
    data = bytearray(open(source, "rb").read())
    if data[:8] != MAGIC:
        sys.exit(f"hide-symbols: {source} is not a static library")
    at = 8
    while at + 60 <= len(data):
        size = int(data[at + 48:at + 58])
        member = bytearray(data[at + 60:at + 60 + size])
        hide(member)
        data[at + 60:at + 60 + size] = member
        at += 60 + size + size % 2
    with open(target, "wb") as out:
        out.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
