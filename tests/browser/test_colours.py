"""People with any kind of colour vision can distinguish the categories, in light and dark."""
import itertools
import math
import re
from pathlib import Path

import pytest

CSS = (Path(__file__).resolve().parent.parent.parent / "analyzer" / "web" / "page.css").read_text()
CATEGORIES = ("parameters", "optimizer_state", "gradients", "inputs", "activations", "workspaces", "temporaries", "unknown")
# Machado, Oliveira, Fernandes 2009: how linear RGB looks to a person who lacks one kind of cone
VISIONS = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def theme(selector):
    block = re.search(re.escape(selector) + r" \{(.*?)\n\}", CSS, re.S).group(1)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


LIGHT = theme(":root")
THEMES = {"light": LIGHT, "dark": {**LIGHT, **theme(':root[data-theme="dark"]')}}


def linear(colour):
    values = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def oklab(colour, vision):
    seen = [min(1, max(0, sum(a * b for a, b in zip(row, linear(colour))))) for row in VISIONS[vision]]
    l, m, s = (sum(a * b for a, b in zip(row, seen)) ** (1 / 3) for row in (
        (0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005)))
    return (0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s, 1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("name", THEMES)
def test_no_two_categories_look_alike(name, vision):
    colours = THEMES[name]
    for a, b in itertools.combinations(CATEGORIES, 2):
        distance = math.dist(oklab(colours[a], vision), oklab(colours[b], vision))
        assert distance > 0.1, f"{a} and {b}: {distance:.3f}"


def contrast(a, b):
    lights = sorted(sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(c))) + 0.05 for c in (a, b))
    return lights[1] / lights[0]


@pytest.mark.parametrize("name", THEMES)
def test_text_can_be_read(name):
    colours = THEMES[name]
    for ink, back, least in (("ink", "card", 7), ("soft", "card", 4.5), ("soft", "sunk", 4.5), ("faint", "card", 4.5), ("accent", "card", 4.5),
                             ("bad", "bad-back", 4.5), ("warn", "warn-back", 4.5), ("more", "card", 4.5), ("less", "card", 4.5)):
        assert contrast(colours[ink], colours[back]) >= least, (ink, back, contrast(colours[ink], colours[back]))
