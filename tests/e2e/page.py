"""Reads the data of a `gpuspy report --html` page with a decoder independent of gpuspy, and checks what must be true of
all pages."""
import json
from html.parser import HTMLParser

DIGITS = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def numbers(text):
    values, value, shift = [], 0, 0
    for c in text:
        value |= (DIGITS[c] & 31) << shift
        shift += 5
        if DIGITS[c] < 32:
            values.append(-(value >> 1) if value & 1 else value >> 1)
            value = shift = 0
    return values


def sums(text):
    out, at = [], 0
    for value in numbers(text):
        at += value
        out.append(at)
    return out


class Page(HTMLParser):
    """A page's elements and the texts of its scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.inside = [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = (tag, dict(attributes)) if tag in ("script", "style", "title") else None
        if self.inside:
            self.texts.append([*self.inside, ""])

    def handle_data(self, data):
        if self.inside:
            self.texts[-1][2] += data

    def handle_endtag(self, tag):
        self.inside = None

    def data(self):
        (text,) = [t for tag, a, t in self.texts if tag == "script" and a.get("id") == "gpuspy-data"]
        return json.loads(text)


class Series:
    def __init__(self, data, given):
        self.given, self.unit = given, given["unit"]
        self.start, self.time = sums(given["start"]), sums(given["time"])
        self.high = [v * self.unit for v in sums(given["high"])]
        self.low = [h - v * self.unit for h, v in zip(self.high, numbers(given["low"]))]
        stacks, words = numbers(given["stack"]), data["categories"]
        self.lines = list(zip(stacks, [words[c] for c in numbers(given["category"])], numbers(given["merged"])))
        self.places = [data["strings"][n - 1] if n else None for n in numbers(given["site"])]
        self.states, now, all_ = [], {}, iter(numbers(given["changes"]))
        for _ in self.time:
            line = 0
            for _ in range(next(all_)):
                line += next(all_)
                nbytes, blocks = now.get(line, (0, 0))
                now[line] = (nbytes + next(all_) * self.unit, blocks + next(all_))
                assert now[line][0] >= 0 and now[line][1] >= 0
                if now[line] == (0, 0):
                    del now[line]
            self.states.append(dict(now))
        assert next(all_, None) is None
        self.exact, line, all_ = {}, 0, numbers(given.get("exact", ""))
        for i in range(0, len(all_), 3):
            line += all_[i]
            self.exact[line] = (all_[i + 1] * self.unit, all_[i + 2])

    def singles(self):
        """Single allocations of each line: [(alloc_ns, free_ns or None, bytes, stack)]."""
        d, out, number = self.given["singles"], {}, 0
        rows = zip(*map(numbers, (d["at"], d["lived"], d["bytes"], d["stack"])))
        groups = numbers(d["line"])
        for step, n in zip(groups[::2], groups[1::2]):
            number, at = number + step, 0
            for _ in range(n):
                more, lived, nbytes, stack = next(rows)
                at += more
                out.setdefault(number, []).append((at * d["ns"], None if lived < 0 else (at + lived) * d["ns"],
                                                   nbytes * d["unit"], self.lines[number][0] + stack))
        assert next(rows, None) is None
        return out

    def by(self, state, what):
        out = {}
        for line, (nbytes, _) in state.items():
            key = self.lines[line][what]
            out[key] = out.get(key, 0) + nbytes
        return out


def each_sums(data):
    out = [Series(data, given) for given in data["series"]]
    for s in out:
        assert len(s.time) == len(s.high) == len(s.low) == len(s.start) == len(s.states)
        assert s.time == sorted(s.time) and all(a <= b for a, b in zip(s.start, s.time))
        for high, low, state in zip(s.high, s.low, s.states):
            assert sum(b for b, _ in state.values()) == high >= low >= 0
    return out


def agrees(report, data, serieses):
    """The maximum of each series equals the report's peak, by call path and by category."""
    for s in serieses:
        (peak,) = [p for p in report["peak"] if (p["pid"], p["device"], p["layer"]) ==
                   (s.given["pid"], s.given["device"], s.given["layer"])]
        at = s.given["peak"]
        assert max(s.high) == s.high[at] == peak["bytes"] and abs(s.time[at] / 1e9 - peak["time_s"]) < 1e-9
        assert sum(n for _, n in s.exact.values()) == peak["count"]
        assert {k: v for k, v in s.by(s.exact, 1).items() if v} == peak["by_category"]
        by_stack = sorted(s.by(s.exact, 0).values(), reverse=True)
        assert [entry["bytes"] for entry in peak["by_stack"]] == by_stack[:len(peak["by_stack"])]


def restored(data):
    shared = data["shared"]

    def back(value):
        if isinstance(value, list):
            return [back(v) for v in value]
        if isinstance(value, dict):
            return back(shared[value["$"]]) if set(value) == {"$"} else {k: back(v) for k, v in value.items()}
        return value
    return back(data["report"])


def blocks(data, given):
    """The segments of a map: (owner, address, bytes, [(offset, bytes, stack, category, pending)])."""
    g, unit, column = given["segments"], given["unit"], iter(numbers(given["blocks"]))
    for address, nbytes, flags, n in zip(sums(g["address"]), *map(numbers, (g["bytes"], g["flags"], g["blocks"]))):
        held, at = [], 0
        for _ in range(n):
            at += next(column) * unit
            size, stack, kind, _ = next(column) * unit, next(column), next(column), next(column)
            held.append((at, size, stack, data["categories"][kind >> 1], bool(kind & 1)))
            at += size
        assert at <= nbytes
        yield [None, "torch", "direct"][flags & 3], address, nbytes, held
    assert next(column, None) is None
