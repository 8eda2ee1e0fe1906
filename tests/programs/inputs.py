"""The files that the sessions of programs.toml work on: the same in every run."""
# SPDX-License-Identifier: MIT

import json
import math
import random
import struct

SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo zu".split()


def vocabulary(generator, words):
    return ["".join(generator.choices(SYLLABLES, k=generator.randrange(1, 5))) for _ in range(words)]


def write_text(folder, generator):
    """text.txt: 30,000 lines of prose, 1.8 MB; page.html: 300 paragraphs and a table; page.md: 40 sections."""
    words = vocabulary(generator, 4000)
    lines = [" ".join(generator.choices(words, k=9)) for _ in range(30000)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    rows = "".join(f"<tr><td>{number}</td><td>{line}</td></tr>\n" for number, line in enumerate(lines[:200]))
    paragraphs = "".join(f"<h2>{lines[at][:20]}</h2><p>{' '.join(lines[at:at + 8])}</p>\n" for at in range(0, 2400, 8))
    (folder / "page.html").write_text(f"<!DOCTYPE html><html><head><title>a page</title></head><body><h1>a page</h1>\n"
                                      f"<table>{rows}</table>{paragraphs}<p id=last></p>"
                                      "<script>let a = []; for (let i = 0; i < 200000; i++) a.push({i, s: 'x' + i});\n"
                                      "document.getElementById('last').textContent = 'objects: ' + a.length;</script>"
                                      "</body></html>\n")
    sections = (f"# {lines[at][:30]}\n\n{' '.join(lines[at:at + 20])}\n\n- *{lines[at]}*\n- `{lines[at + 1]}`\n\n"
                "| a | b |\n|---|---|\n| 1 | 2 |\n\n" for at in range(0, 800, 20))
    (folder / "page.md").write_text("".join(sections))


def write_tables(folder, generator):
    """table.csv and objects.json: 50,000 rows and 20,000 objects."""
    with open(folder / "table.csv", "w", encoding="ascii") as file:
        file.write("id,kind,value,text\n")
        for number in range(50000):
            file.write(f"{number},{generator.randrange(100)},{generator.random():.6f},{generator.randbytes(8).hex()}\n")
    objects = [{"id": number, "tags": [generator.randbytes(3).hex() for _ in range(number % 7)],
                "inner": {"x": generator.random(), "name": generator.randbytes(10).hex()}} for number in range(20000)]
    (folder / "objects.json").write_text(json.dumps(objects))


def write_picture(folder, generator):
    """picture.ppm: 640 x 480, waves and noise; picture.svg: 2,000 circles and some words."""
    pixels = bytearray()
    for y in range(480):
        for x in range(640):
            wave = int(100 + 100 * math.sin(x / 31) * math.cos(y / 23))
            pixels += bytes((wave, (x * y) & 255, (wave + generator.getrandbits(4)) & 255))
    (folder / "picture.ppm").write_bytes(b"P6\n640 480\n255\n" + pixels)
    circles = "".join(f'<circle cx="{generator.randrange(800)}" cy="{generator.randrange(600)}"'
                      f' r="{generator.randrange(2, 30)}" fill="#{generator.randbytes(3).hex()}" opacity="0.5"/>\n'
                      for _ in range(2000))
    (folder / "picture.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="800" height="600">\n' +
                                        circles + '<text x="40" y="300" font-size="60">two thousand</text></svg>\n')


def write_sound(folder):
    """sound.wav: ten seconds of two tones, 44,100 samples a second."""
    samples = b"".join(struct.pack("<h", int(12000 * math.sin(at / 16) + 6000 * math.sin(at / 5.3)))
                       for at in range(441000))
    form = struct.pack("<IHHIIHH", 16, 1, 1, 44100, 88200, 2, 16)
    (folder / "sound.wav").write_bytes(b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + form +
                                       b"data" + struct.pack("<I", len(samples)) + samples)


def write_sources(folder, generator):
    """many.c: a thousand functions, whose sum it prints; many.cc: forty templates with maps and strings."""
    bodies = [f"unsigned f{number}(unsigned a, unsigned b) {{ unsigned s = {generator.randrange(1000)}; "
              "for (unsigned i = 0; i < b; i++) "
              f"s = s * {generator.randrange(3, 99)} + (a ^ i) % {generator.randrange(3, 99)}; return s; }}\n"
              for number in range(1000)]
    calls = "".join(f"    s += f{number}({number}, {number % 13});\n" for number in range(1000))
    (folder / "many.c").write_text("#include <stdio.h>\n" + "".join(bodies) +
                                   f'int main(void) {{\n    unsigned s = 0;\n{calls}    printf("%u\\n", s);\n}}\n')
    headers = "algorithm iostream map memory regex string vector".split()
    templates = (f"template <int N> struct s{number} {{ std::map<int, std::vector<std::string>> m; int f() {{ "
                 f"m[N].push_back(std::to_string(N + {number})); return int(m[N].back().size()); }} }};\n"
                 for number in range(40))
    calls = "".join(f"    sum += s{number}<{number * 7}>().f();\n" for number in range(40))
    (folder / "many.cc").write_text(
        "".join(f"#include <{header}>\n" for header in headers) + "".join(templates) +
        "int main() {\n    int sum = 0;\n" + calls +
        '    std::regex r("(a+)(b|c)*"); std::cout << sum << std::regex_match("aabc", r) << "\\n";\n}\n')


def write(folder):
    folder.mkdir()
    generator = random.Random(5)
    write_text(folder, generator)
    write_tables(folder, generator)
    write_picture(folder, generator)
    write_sound(folder)
    write_sources(folder, generator)
