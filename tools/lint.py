"""The checks of the text, and what puts the format right. tests/gates_test.py plants what each check is to find."""
# SPDX-License-Identifier: MIT
import concurrent.futures
import os
import subprocess
import sys
import traceback

from base import JOBS, ROOT, python, run
from packages import need

WORKSPACES = ("cli", "rust", "rust/bench")
CHECKS = ("layers_test", "layers", "cli_layers", "docs_names", "licence", "columns", "walks")


def files(folders, *suffixes):
    """Those of the tree with these suffixes, without what others wrote or programs made."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not {"build", "third_party"} & set(path.relative_to(ROOT).parts):
                yield path


def formatted_files():
    """The C and C++ files whose format is ours."""
    return list(files(["include", "src", "bench", "tests"], ".c", ".h", ".cc"))


def pages():
    """The pages whose prose is ours."""
    return [*sorted(ROOT.glob("*.md")), *files(["docs", "packaging", "python", "rust"], ".md")]


def side_by_side(commands):
    """Runs the commands, one for each processor at a time; fails if one does, once all have ended."""
    def said(command):
        return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        done = list(pool.map(said, commands))
    sys.stdout.flush()
    for one in done:
        sys.stdout.buffer.write(one.stdout)
    if any(one.returncode for one in done):
        sys.exit(1)


def lint_format():
    names = formatted_files()
    side_by_side(["clang-format", "--dry-run", "-Werror", *names[at:at + 16]] for at in range(0, len(names), 16))


def lint_scripts():
    run("shellcheck", "-x", "-P", ROOT, ROOT / "hak", ROOT / ".ci/run", *files(["tests", "bench", "packaging"], ".sh"))


def lint_python():
    for path in files(["bench", "cli/tests", "docs", "packaging", "python", "tests", "tools"], ".py"):
        try:
            compile(path.read_text(), path, "exec")
        except SyntaxError:
            traceback.print_exc(limit=0, file=sys.stdout)
            sys.exit(1)


def lint_sources():
    """HAK_LINT_NODES: how far the analyzer follows the paths of a function; its own limit takes four times as long."""
    nodes = os.environ.get("HAK_LINT_NODES", "20000")
    side_by_side(["clang-tidy", "--quiet", path, "--", "-std=gnu17", "-D_GNU_SOURCE", "-iquote", ROOT / "src",
                  f"-I{ROOT}/include", "-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={nodes}"]
                 for path in files(["src"], ".c"))


def lint_rust(workspace):
    run("cargo", "fmt", "--all", "--check", cwd=ROOT / workspace)


def lint_text():
    """The part of lint that takes seconds. Like lint, it ends at the first fault."""
    lint_format()
    lint_scripts()
    lint_python()
    for check in CHECKS:
        python(f"tests/{check}.py")
    python("tests/prove/prove.py", "--fits")


def lint():
    need("lint")
    lint_text()
    lint_sources()
    for workspace in WORKSPACES:
        lint_rust(workspace)


def format_all():
    need("format")
    run("clang-format", "-i", *formatted_files())
    python("docs/wrap.py", *pages())
    for workspace in WORKSPACES:
        run("cargo", "fmt", "--all", cwd=ROOT / workspace)
