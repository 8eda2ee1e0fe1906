#!/usr/bin/env python3
"""Prints the generated input of a real program: `generate.py NAME`. A fixed seed makes it the same on every run.

redis    requests in Redis's protocol: strings, sorted sets, hashes and lists of mixed sizes that grow and disappear
sqlite   an in-memory database: rows of mixed sizes, an index, updates, deletes, joins, a vacuum
smt2     bit vectors, arrays and linear arithmetic for z3
ps       pages of text, curves and shaded, clipped figures for Ghostscript
"""
# SPDX-License-Identifier: MIT

import random
import sys


def redis():
    generator = random.Random(1)

    def request(*words):
        return f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)

    for number in range(90_000):
        key = generator.randrange(number + 1)
        yield request("SET", f"key:{number}", "v" * generator.randrange(8, 600))
        yield request("APPEND", f"key:{key}", "a" * generator.randrange(1, 50))
        yield request("GET", f"key:{key}")
        yield request("ZADD", f"sorted:{number % 97}", str(generator.randrange(10**6)), f"member:{key % 5000}")
        yield request("HSET", f"hash:{number % 1009}", f"field:{generator.randrange(300)}", str(key))
        yield request("RPUSH", f"list:{number % 499}", "e" * generator.randrange(5, 100))
        yield request("DEL", f"key:{generator.randrange(number + 1)}")


def sqlite():
    generator = random.Random(2)
    yield ".bail on\ncreate table t(id integer primary key, kind int, body text);\nbegin;\n"
    for _ in range(40_000):
        yield (f"insert into t(kind, body) values ({generator.randrange(500)}, "
               f"'{generator.randbytes(generator.randrange(20, 300)).hex()}');\n")
    yield "commit;\ncreate index k on t(kind, substr(body, 1, 20));\n"
    for step in range(4):
        yield f"update t set body = body || substr(body, 1, 40) where kind % 7 = {step};\n"
        yield f"delete from t where kind % 50 = {step};\n"
        yield "select kind, count(*), sum(length(body)), max(body) from t group by kind order by 3 desc limit 3;\n"
        yield (f"select count(*), max(a.body || b.body) from t a join t b on a.kind = b.kind and a.id < b.id "
               f"where a.kind % 10 = {step + 4};\n")
        yield (f"select length(group_concat(x)) from (select upper(substr(body, 3, 30)) as x from t "
               f"order by substr(body, {step + 5}, 9));\n")
    yield "vacuum;\npragma integrity_check;\nselect count(*), sum(length(body)) from t;\n"


def smt2():
    generator = random.Random(4)
    yield "(set-option :smt.random_seed 1)\n"
    for problem in range(4):
        names = [f"x{number}" for number in range(60)]
        yield "(push)\n" + "".join(f"(declare-const {name} Int)\n(assert (<= 0 {name} 90))\n" for name in names)
        yield "(declare-const a (Array Int Int))\n(declare-const b (_ BitVec 20))\n(declare-const c (_ BitVec 20))\n"
        for _ in range(220):
            one, two, three = generator.sample(names, 3)
            yield (f"(assert (or (< (+ {one} (* 3 {two})) {generator.randrange(30, 150)}) "
                   f"(> (- {two} {three}) {generator.randrange(20)}) "
                   f"(= (select a {three}) (+ {one} {generator.randrange(9)}))))\n"
                   f"(assert (not (= {one} (+ {three} {generator.randrange(5)}))))\n")
        yield (f"(assert (= (bvmul b c) #x{generator.randrange(1 << 20) | 1:05x}))\n"
               f"(assert (and (bvult #x00003 b) (bvult b c)))\n(assert (= a (store a {problem} {problem})))\n"
               f"(check-sat)\n(pop)\n")


def ps():
    generator = random.Random(5)
    yield "%!PS\n"
    for page in range(24):
        yield f"/Times-Roman findfont {8 + page % 3} scalefont setfont\n"
        for line in range(60):
            text = "".join(generator.choice("abcdefghijklmnop qrst uvwxyz ") for _ in range(80))
            yield f"0.1 setgray 40 {760 - line * 12} moveto ({text}) show\n"
        for _ in range(400):
            points = " ".join(str(generator.randrange(600)) for _ in range(6))
            color = " ".join(f"{generator.random():.2f}" for _ in range(3))
            yield f"{color} setrgbcolor newpath {generator.randrange(600)} {generator.randrange(800)} moveto " \
                  f"{points} curveto closepath {generator.choice(['fill', 'stroke', 'eofill'])}\n"
        for _ in range(20):
            x, y, r = generator.randrange(100, 500), generator.randrange(100, 700), generator.randrange(20, 90)
            yield (f"gsave newpath {x} {y} {r} 0 360 arc clip\n<< /ShadingType 3 /ColorSpace /DeviceRGB "
                   f"/Coords [{x} {y} 0 {x} {y} {r}] /Function << /FunctionType 2 /Domain [0 1] "
                   f"/C0 [1 {generator.random():.2f} 0] /C1 [0 0 1] /N 1 >> >> shfill grestore\n")
        yield "showpage\n"


INPUTS = {"redis": redis, "sqlite": sqlite, "smt2": smt2, "ps": ps}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in INPUTS:
        sys.exit(f"usage: generate.py {'|'.join(INPUTS)}")
    sys.stdout.writelines(INPUTS[sys.argv[1]]())
