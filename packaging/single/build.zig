//! HAKMEM for Zig, from the one file beside this one: program.root_module.linkLibrary(dependency.artifact("hakmem")).
// SPDX-License-Identifier: MIT
const std = @import("std");

pub fn build(b: *std.Build) void {
    const override = b.option(bool, "override", "replace malloc and its kin; false: hak_* alone") orelse true;
    const module = b.createModule(.{
        .target = b.standardTargetOptions(.{}),
        .optimize = b.standardOptimizeOption(.{}),
        .link_libc = true,
    });
    module.addCSourceFile(.{
        .file = b.path("hakmem.c"),
        .flags = &.{ "-std=gnu17", "-O3", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-sanitize=undefined" },
    });
    if (!override) module.addCMacro("HAKMEM_NO_OVERRIDE", "1");
    const library = b.addLibrary(.{ .name = "hakmem", .root_module = module, .linkage = .static });
    library.installHeader(b.path("hakmem.h"), "hakmem.h");
    library.installHeader(b.path("hakmem.hpp"), "hakmem.hpp");
    b.installArtifact(library);
}
