//! The declarations are those of hakmem.h, and the flags of the compiler those of CMakeLists.txt. If these tests fail,
//! calls from Rust pass the wrong arguments, or the crate is another library than the one that is tested.
// SPDX-License-Identifier: MIT
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// `const char *name` of C as `name: *const c_char`.
fn rust_argument(c: &str) -> String {
    if c == "void (*call)(void *argument)" {
        return "call: Option<SoftLimitCallback>".into();
    }
    let (c_type, name) = c.split_at(c.rfind([' ', '*']).unwrap() + 1);
    format!("{name}: {}", rust_type(c_type))
}

fn rust_type(c: &str) -> &str {
    match c.trim() {
        "size_t" => "usize",
        "size_t *" => "*mut usize",
        "int" => "c_int",
        "unsigned" => "c_uint",
        "hak_site_stats *" => "*mut hak_site_stats",
        "void *" => "*mut c_void",
        "const void *" => "*const c_void",
        "char *" => "*mut c_char",
        "const char *" => "*const c_char",
        "unsigned long long" => "c_ulonglong",
        "struct hak_defrag *" => "*mut hak_defrag",
        "struct hak_class_use *" => "*mut hak_class_use",
        "hak_arena *" => "*mut hak_arena",
        "hak_arena **" => "*mut *mut hak_arena",
        "const hak_arena_options *" => "*const hak_arena_options",
        "hak_arena_stats *" => "*mut hak_arena_stats",
        "hak_arena_visitor *" => "hak_arena_visitor",
        other => panic!("hakmem.h has a type that is new here: {other}"),
    }
}

/// What the header declares, as Rust would.
fn of_header() -> BTreeMap<String, String> {
    let header = read("c/include/hakmem.h");
    let declarations = header.split("\nHAK_EXPORT ").skip(1);
    let as_rust = |c: &str| {
        let c = &c[..c.find(" HAK_NOEXCEPT").unwrap()];
        let (before, arguments) = c.strip_suffix(')').unwrap().split_once('(').unwrap();
        let (c_type, name) = before.split_at(before.rfind([' ', '*']).unwrap() + 1);
        let arguments: Vec<String> = match arguments {
            "void" => Vec::new(),
            some => some.split(", ").map(rust_argument).collect(),
        };
        let result = if c_type.trim() == "void" { String::new() } else { format!(" -> {}", rust_type(c_type)) };
        (name.to_string(), format!("({}){result}", arguments.join(", ")))
    };
    declarations.map(as_rust).collect()
}

fn of_crate() -> BTreeMap<String, String> {
    let source = read("src/lib.rs");
    let declarations = source.lines().filter_map(|line| line.trim().strip_prefix("pub fn ")?.strip_suffix(';'));
    declarations.map(|line| line.split_at(line.find('(').unwrap())).map(|(n, r)| (n.into(), r.into())).collect()
}

#[test]
fn declarations_are_those_of_the_header() {
    let of_header = of_header();
    assert!(of_header.len() >= 19, "the header is not read right: {of_header:#?}");
    assert_eq!(of_header, of_crate());
}

#[test]
fn flags_are_those_of_cmake() {
    let lists = read("c/CMakeLists.txt");
    let flags = lists.lines().find(|line| line.contains("-fno-builtin-malloc")).unwrap();
    let build = read("build.rs");
    for flag in flags.split_whitespace() {
        assert!(build.contains(flag), "CMakeLists.txt has {flag}");
    }
}

#[test]
fn package_has_the_version_of_the_library() {
    let version = unsafe { std::ffi::CStr::from_ptr(hakmem_sys::hak_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
