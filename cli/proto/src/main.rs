//! Writes src/profile/pprof/proto.rs, which is kept in the repository so that the command is built without a compiler
//! of .proto files. A test says when the file is not what profile.proto gives.
// SPDX-License-Identifier: MIT

use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/profile/pprof")
}

fn generated() -> String {
    let files = protox::compile(["profile.proto"], [directory()]).expect("profile.proto is sound");
    let out = tempfile::tempdir().expect("a directory for what is generated");
    prost_build::Config::new().out_dir(out.path()).compile_fds(files).expect("prost-build takes it");
    let file = out.path().join("perftools.profiles.rs");
    let text = std::fs::read_to_string(file).expect("prost-build writes a file for the package");
    text.replacen('\n', "\n// SPDX-License-Identifier: MIT\n", 1) // below the line that says who wrote it
}

fn main() {
    std::fs::write(directory().join("proto.rs"), generated()).expect("proto.rs can be written");
}

#[test]
#[ignore = "50 crates for this test alone: ./hak soak tests runs it"]
fn the_generated_file_is_current() {
    let kept = std::fs::read_to_string(directory().join("proto.rs")).unwrap();
    assert!(kept == generated(), "profile.proto has changed: cargo run -p hakmem-proto");
}
