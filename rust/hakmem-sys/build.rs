//! Compiles the C sources as CMakeLists.txt does for the static library (tests/library.rs compares the flags).
//!
//! 1. The sources are all C files below `c/src`, which is a link in the repository, and a copy in a package.
//! 2. libc.c and libc_stats.c, which define malloc and its kin, are for the feature `override`. new.c, C++'s
//!    operators, is left out, and hinted.c with it: those of the C++ library call malloc.
// SPDX-License-Identifier: MIT
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let is = |name: &str, value: &str| env::var(name).as_deref() == Ok(value);
    if !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_POINTER_WIDTH", "64") {
        panic!("HAKMEM is for 64-bit Linux only");
    }
    let c = Path::new("c");
    let mut without = vec!["new.c", "hinted.c"];
    if env::var_os("CARGO_FEATURE_OVERRIDE").is_none() {
        without.extend(["libc.c", "libc_stats.c"]);
    }
    cc::Build::new()
        .files(sources(&c.join("src"), &without))
        .std("gnu17")
        .define("_GNU_SOURCE", None)
        .define("HAK_IN_PROGRAM", None)
        .include(c.join("include"))
        .flag("-iquotec/src")
        .flag("-fvisibility=hidden")
        .flags(["-fno-builtin-malloc", "-fno-semantic-interposition", "-ftls-model=initial-exec", "-fexceptions"])
        .pic(true)
        .opt_level(3) // in debug builds, too
        .force_frame_pointer(false)
        .warnings(false)
        .compile("hakmem");
    if is("CARGO_CFG_TARGET_ENV", "musl") {
        println!("cargo:rustc-link-lib=gcc"); // what the processor can do; Rust links no libgcc there
    }
    println!("cargo:rerun-if-changed=c/src");
    println!("cargo:rerun-if-changed=c/include");
}

fn sources(folder: &Path, without: &[&str]) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            sources.extend(self::sources(&path, without));
        } else if name.ends_with(".c") && !without.contains(&name) {
            sources.push(path);
        }
    }
    sources.sort(); // so that two builds are alike
    sources
}
