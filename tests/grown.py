"""The figures that lint bounds, with the reasons why each is as large as it is: grown.txt."""
# SPDX-License-Identifier: MIT
import pathlib
import re

FILE = pathlib.Path(__file__).resolve().parent / "grown.txt"


def rows():
    """By name, the figure and its reason."""
    found = re.findall(r"^([^#\s]\S*) (\d+) (.*)$", FILE.read_text(), re.MULTILINE)
    return {name: (int(figure), why) for name, figure, why in found}


def excess(name, figure):
    """What to say of a figure that has grown, "" if it has not."""
    bound, why = rows()[name]
    return "" if figure <= bound else f"more than {bound} ({why}): say why in tests/grown.txt, with the new figure"
