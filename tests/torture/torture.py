#!/usr/bin/env python3
"""Random programs, each run bare and recorded: `make torture [MINUTES=10] [SEED=n] [ONLY="…"] [T=word]`.

A case is a list of settings (outside.py) and behaviours (behaviours.def), each with a number that determines everything
that varies in it. Every failure prints the line that repeats it, and is then reduced to as few behaviours as still fail.
The cases of former defects (cases.txt) come first.

  torture.py [--minutes N | --seconds N] [--seed N] [--only "NAME=NUMBER …"] [--with WORD] [--fixed] [--no-minimise]
"""
import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import case  # noqa: E402
import outside  # noqa: E402

MINIMISE_S = 90


class Row:
    def __init__(self, line):
        self.name, self.family, self.place, needs, weight, self.what = line.split("\t")
        self.needs, self.weight = set(needs.split()), float(weight)

    def possible(self):
        return self.place != "NEVER" and ("root" not in self.needs or os.geteuid() == 0)


def table():
    text = subprocess.run([case.TORTURE / "torture", "--list"], text=True, stdout=subprocess.PIPE, check=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=str(case.BUILD / "sim"))).stdout
    return {row.name: row for row in map(Row, text.splitlines())}


def choose(source, rows):
    return source.choices(rows, [row.weight for row in rows])[0]


def settings_for(source, behaviours):
    found = []
    names = list(outside.SETTINGS)
    while source.random() < 0.4:
        name = source.choices(names, [outside.SETTINGS[n][0] for n in names])[0]
        if name not in found and not (name in ("tmpfs", "ext4", "no_folder") and {"tmpfs", "ext4", "no_folder"} & set(found)):
            found.append(name)
    if {"outside_fill", "outside_gone"} & {b.name for b in behaviours} and not {"tmpfs", "ext4"} & set(found):
        found = [n for n in found if n != "no_folder"] + [source.choice(["tmpfs", "ext4"])]
    sizes = {"tmpfs": (100, 30000), "ext4": (500, 30000)}
    return [(name, source.randint(*sizes.get(name, (0, 99)))) for name in found]


def compose(source, rows, long_run):
    """A random case: settings, what comes before CUDA, what comes any time, an end."""
    rows = [r for r in rows.values() if r.possible() and r.weight > 0 and (long_run or "rare" not in r.needs)]
    first = [choose(source, [r for r in rows if r.place == "FIRST"]) for _ in range(source.choice((0, 0, 1, 1, 2)))]
    later = [choose(source, [r for r in rows if r.place == "ANY"]) for _ in range(source.randint(1, 4))]
    last = [choose(source, [r for r in rows if r.place == "LAST"])] if source.random() < 0.6 else []
    behaviours, alone = [], False
    for row in first + later + last:
        if "alone" in row.needs and alone:
            continue
        alone = alone or "alone" in row.needs
        behaviours.append(row)
    return settings_for(source, behaviours) + [(row.name, source.randint(0, 99999)) for row in behaviours]


def written(items):
    return " ".join(f"{name}={number}" for name, number in items)


def parsed(text, rows):
    items = []
    for word in text.split():
        name, _, number = word.partition("=")
        if name not in rows and name not in outside.SETTINGS:
            sys.exit(f"torture: no behaviour or setting {name}")
        items.append((name, int(number or 0)))
    return items


class Torture:
    def __init__(self, options):
        self.rows, self.options = table(), options
        self.failures, self.cases = [], 0

    def tried(self, items):
        raw = any(name in self.rows and "raw" in self.rows[name].needs for name, _ in items)
        return case.try_case(items, raw)

    def kinds(self, problems):
        return {p.split(":")[0] for p in problems if not p.startswith("(gpuspy")}

    def minimise(self, items, problems):
        """As few items as possible that still fail in one of the ways."""
        until, wanted = time.monotonic() + MINIMISE_S, self.kinds(problems)
        shorter = True
        while shorter and len(items) > 1:
            shorter = False
            for n in range(len(items)):
                fewer = items[:n] + items[n + 1:]
                if time.monotonic() > until:
                    return items
                if any(name in self.rows for name, _ in fewer) and self.kinds(self.tried(fewer)[0]) & wanted:
                    items, shorter = fewer, True
                    break
        return items

    def one(self, items, title):
        self.cases += 1
        problems, bare, recorded = self.tried(items)
        if problems and problems[0].startswith("(bare)"):  # not a defect of the recorder
            print(f"left out {title}: hangs without gpuspy, too: {written(items)}", flush=True)
            if self.options.verbose:
                print("     " + problems[0].replace("\n", "\n       "), flush=True)
            return
        if not problems:
            if self.options.verbose:
                print(f"ok   {title}: {written(items)} ({bare:.1f} s, recorded {recorded:.1f} s)", flush=True)
            return
        if self.options.confirm and not any(self.tried(items)[0] for _ in range(self.options.confirm)):
            print(f"ONCE {title}: {problems[0]}", flush=True)
            print(f'     again: make torture SEED={self.options.seed} ONLY="{written(items)}"', flush=True)
            return
        self.failures.append(title)
        print(f"FAIL {title} ({bare:.1f} s, recorded {recorded:.1f} s)", flush=True)
        for problem in problems[:8]:
            print("     " + problem.replace("\n", "\n       "), flush=True)
        print(f'     again: make torture SEED={self.options.seed} ONLY="{written(items)}"', flush=True)
        if not self.options.no_minimise and not self.options.only and len(items) > 1:
            fewer = self.minimise(items, problems)
            if fewer != items:
                print(f'     less:  make torture ONLY="{written(fewer)}"', flush=True)

    def fixed(self):
        for line in (Path(__file__).parent / "cases.txt").read_text().splitlines():
            title, colon, text = line.partition(":")
            if line.startswith("#") or not colon:
                continue
            items = parsed(text, self.rows)
            if self.options.word in line:
                self.one(items, title)

    def random(self, seconds):
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            number += 1
            items = compose(random.Random(f"{self.options.seed}:{number}"), self.rows, seconds > 120)
            if self.options.word in written(items):
                self.one(items, f"case {number} of seed {self.options.seed}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100000)
    parser.add_argument("--only", default="")
    parser.add_argument("--times", type=int, default=1, help="with --only: so many times")
    parser.add_argument("--with", dest="word", default="", help="only cases with this word")
    parser.add_argument("--fixed", action="store_true", help="only the cases of cases.txt")
    parser.add_argument("--confirm", type=int, default=0,
                        help="a case fails only if it fails again in one of so many runs; else it is shown as ONCE")
    parser.add_argument("--no-minimise", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    case.adopt_orphans()
    torture, start = Torture(options), time.monotonic()
    if options.only:
        for n in range(options.times):
            torture.one(parsed(options.only, torture.rows), f"only, {n + 1}")
    else:
        torture.fixed()
        seconds = options.seconds if options.seconds is not None else options.minutes * 60
        if not options.fixed:
            torture.random(seconds - (time.monotonic() - start))
    print(f"torture: {torture.cases} cases, {len(torture.failures)} failed, seed {options.seed}, "
          f"{time.monotonic() - start:.0f} s")
    return 1 if torture.failures else 0


if __name__ == "__main__":
    sys.exit(main())
