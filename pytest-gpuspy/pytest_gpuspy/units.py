"""Sizes as people write them."""
import re

FACTORS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "kib": 1 << 10, "mib": 1 << 20,
           "gib": 1 << 30, "tib": 1 << 40, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def parse_bytes(text: object) -> int:
    """"1 GiB", "512MiB", "0", 4096 → bytes. "1G" is 1 GiB; only 0 needs no unit in a text. ValueError with what is wrong."""
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise ValueError(f"{text} is negative")
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text) if isinstance(text, str) else None
    if match and not match[2] and float(match[1]) == 0:
        return 0
    if match and not match[2]:
        raise ValueError(f"{text!r} has no unit; write a size such as '1 GiB', or a number of bytes")
    if not match or match[2].lower() not in FACTORS:
        raise ValueError(f"{text!r} is not a size; write one such as '1 GiB'")
    return int(float(match[1]) * FACTORS[match[2].lower()])


def format_bytes(n: float) -> str:
    """As gpuspy prints it: a size that would round to 1024.00 gets the next unit."""
    if abs(n) < 1024:
        return f"{n:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        n /= 1024
        if abs(n) < 1023.995:
            break
    return f"{n:.2f} {unit}"
