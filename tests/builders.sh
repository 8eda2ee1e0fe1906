#!/usr/bin/env bash
# Tests the builds for Meson, Zig and Bazel that come with the single file: each builds it as a part of another project,
# whose program works and has HAKMEM's malloc. What is not installed is named as skipped; Zig is python3 -m ziglang.
# ./hak soak packages, which ./hak release runs, installs them from PyPI and Debian.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/kit.sh
. "$(dirname "$0")/kit.sh"
ROOT=$(cd "$(dirname "$0")/.." && pwd)
VERSION=$(sed -n 's/^project(hakmem VERSION \([0-9.]*\).*/\1/p' "$ROOT/CMakeLists.txt")
skipped=()

# project NAME: goes into the project of a program.
project() {
  mkdir "$SCRATCH/$1"
  cd "$SCRATCH/$1"
  cp "$ROOT/tests/install/consumer.c" .
}

# works PROGRAM
works() {
  [[ $("$1") == 'consumer works' ]] || fail "$1 does not work"
  HAKMEM_STATS=1 "$1" 2>&1 | grep '^hakmem [0-9]' >/dev/null || fail "$1 has another malloc"
  echo "ok   ${1%%/*}"
}

# By the wrap of a release, whose tarball lies where Meson looks before it downloads.
with_meson() {
  local sum
  project meson
  cat >meson.build <<'END'
project('consumer', 'c')
executable('consumer', 'consumer.c', dependencies: dependency('hakmem'))
END
  mkdir -p subprojects/packagefiles
  SOURCE_DATE_EPOCH=0 "$ROOT/packaging/release.sh" single "$VERSION" "$SCRATCH/release"
  sum=$(sha256sum <"$SCRATCH/release/hakmem-single-$VERSION.tar.gz" | cut -d ' ' -f 1)
  sed -e '/^source_url/d' -e "s/@VERSION@/$VERSION/; s/@SHA256@/$sum/" \
    "$ROOT/packaging/single/hakmem.wrap" >subprojects/hakmem.wrap
  cp "$SCRATCH/release/hakmem-single-$VERSION.tar.gz" subprojects/packagefiles
  meson setup out >log
  ninja -C out >>log || { cat log && fail "Meson does not build it"; }
  cd .. && works meson/out/consumer
}

with_zig() {
  project zig
  cp -R "$SCRATCH/single" hakmem
  cat >build.zig <<'END'
const std = @import("std");
pub fn build(b: *std.Build) void {
    const module = b.createModule(.{
        .target = b.standardTargetOptions(.{}),
        .optimize = b.standardOptimizeOption(.{}),
        .link_libc = true,
    });
    module.addCSourceFile(.{ .file = b.path("consumer.c") });
    module.linkLibrary(b.dependency("hakmem", .{}).artifact("hakmem"));
    b.installArtifact(b.addExecutable(.{ .name = "consumer", .root_module = module }));
}
END
  cat >build.zig.zon <<'END'
.{
    .name = .consumer,
    .version = "0.0.0",
    .fingerprint = 0x705b37275d9bf22e,
    .paths = .{""},
    .dependencies = .{ .hakmem = .{ .path = "hakmem" } },
}
END
  export ZIG_GLOBAL_CACHE_DIR=$SCRATCH/zig-cache ZIG_LOCAL_CACHE_DIR=$SCRATCH/zig-cache
  python3 -m ziglang build >log 2>&1 || { cat log && fail "Zig does not build it"; }
  cd .. && works zig/zig-out/bin/consumer
}

# Debian's Bazel is older than modules, and knows the rules itself that newer ones have in repositories of their own:
# these are stood in for. What MODULE.bazel says is not tested.
with_bazel() {
  local repository rule
  project bazel
  cp -R "$SCRATCH/single" hakmem
  for repository in rules_cc/cc rules_java/java rules_proto/proto; do
    mkdir -p "$repository"
    touch "${repository%/*}"/{WORKSPACE,BUILD} "$repository/BUILD"
    echo "local_repository(name = '${repository%/*}', path = '${repository%/*}')" >>WORKSPACE
    echo "${repository%/*}" >>.bazelignore
  done
  for rule in cc/cc_{binary,import,library,test,toolchain,toolchain_suite} cc/fdo_{prefetch_hints,profile} \
    java/java_{binary,import,library,package_configuration,plugin,runtime,test,toolchain} \
    proto/proto_{lang_toolchain,library}; do
    echo "${rule#*/} = native.${rule#*/}" >>"rules_${rule%/*}/${rule%/*}/defs.bzl"
  done
  touch hakmem/WORKSPACE
  echo hakmem >>.bazelignore
  echo "local_repository(name = 'hakmem', path = 'hakmem')" >>WORKSPACE
  echo "cc_binary(name = 'consumer', srcs = ['consumer.c'], deps = ['@hakmem//:hakmem'])" >BUILD
  bazel --batch --output_user_root="$SCRATCH/bazel-out" build //:consumer >log 2>&1 ||
    { cat log && fail "Bazel does not build it"; }
  cd .. && works bazel/bazel-bin/consumer
}

python3 "$ROOT/packaging/amalgamate.py" "$SCRATCH/single" >/dev/null
if command -v meson >/dev/null; then with_meson; else skipped+=(meson); fi
if python3 -m ziglang version >/dev/null 2>&1; then with_zig; else skipped+=(zig); fi
if command -v bazel >/dev/null; then with_bazel; else skipped+=(bazel); fi
echo "the single file is built by each${skipped[*]:+; skipped, not installed: ${skipped[*]}}"
