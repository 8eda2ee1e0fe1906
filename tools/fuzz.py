"""The fuzz targets of the library, and the readers of the command with damaged input."""
# SPDX-License-Identifier: MIT
import os
import re
import subprocess
import sys

from base import BUILD, ROOT, Failed, Steps, die, figures, number, run, teed
from build import COMMAND_CRATES, compile_logged, in_cli
from packages import need

FUZZERS = ("operations", "damage", "options")


def options_table():
    """The rows of the table of options."""
    return re.findall(r"^X\(([A-Z0-9_]*), *(\w*)(.*)", (ROOT / "src/base/options.h").read_text(), re.MULTILINE)


def fuzz_dictionary():
    """The words that the parser knows: names of options, and words their values may have."""
    words = [f"{name}=" for name, _, _ in options_table()]
    for _, kind, rest in options_table():
        choices = re.match(r'[^"]*"([^"]*)"', rest)
        words += choices.group(1).split("|") if kind == "CHOICE" and choices else []
    words += "HAKMEM_ , / k m g t ib . on off yes no true false 18446744073709551615".split()
    return "".join(f'"{word}"\n' for word in words)


def fuzz_target(name, seconds, secure=False):
    """Continues from the corpus in build/fuzz/corpus/NAME and the seeds in tests/fuzz/corpus/NAME."""
    folder = BUILD / "fuzz"
    corpus, log = folder / "corpus" / name, folder / f"{name}{'-secure' if secure else ''}.log"
    corpus.mkdir(parents=True, exist_ok=True)
    more = ["-len_control=0", "-max_len=4096"]
    if name == "options":
        (folder / "options.dict").write_text(fuzz_dictionary())
        more = ["-max_len=512", "-close_fd_mask=2", f"-dict={folder}/options.dict"]
    try:
        with open(log, "w", encoding="utf-8") as out:
            run(folder / f"tests/fuzz/fuzz_{name}", f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=1024",
                *more, f"-artifact_prefix={folder}/{name}-", corpus, ROOT / "tests/fuzz/corpus" / name, stdout=out,
                stderr=subprocess.STDOUT, env={"HAKMEM_SECURE": 1} if secure else {})
    except Failed:
        print("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
        sys.exit(f"again: build/fuzz/tests/fuzz/fuzz_{name} FILE")
    print("\n".join(re.findall("^figure: .*", log.read_text(errors="replace"), re.MULTILINE)))


def fuzz_targets(seconds, *names):
    step = Steps()
    seconds *= int(os.environ.get("HAK_TEST_LONGER", 1))
    compile_logged(BUILD / "fuzz-build.log", "the fuzz targets could not be built", "fuzz", "fuzz", target="fuzzers")
    secure = any(name == "SECURE" for name, _, _ in options_table())
    for name in names:
        step(f"fuzz {name}", fuzz_target, name, seconds)
        if name == "damage" and secure:
            step(f"fuzz {name}, secure mode", fuzz_target, name, seconds, True)
    step.end()


def fuzz(*words):
    seconds, names, words = 60, [], list(words)
    while words:
        word = words.pop(0)
        if word == "--seconds":
            seconds = number(words.pop(0) if words else "", "fuzz: --seconds takes a number")
        elif word in FUZZERS:
            names.append(word)
        else:
            die(f"fuzz: no such target: {word}; there are: {' '.join(FUZZERS)}")
    need("fuzz")
    good = teed(BUILD / "fuzz.log", fuzz_targets, seconds, *(names or FUZZERS))
    figures("fuzz", BUILD / "fuzz.log")
    sys.exit(not good)


def fuzz_readers(seconds):
    """Each reader of the command gets damaged input for so long, all of a crate's at once."""
    in_cli("test", *COMMAND_CRATES, "--lib", "--bins", "--", "--nocapture", "--test-threads", "64", "any_",
           "every_fact", env={"HAKMEM_FUZZ_SECONDS": seconds})
