//! What the tests of the commands run, and how: programs with known heaps, and `hakmem` itself. HAKMEM_LIBRARY names
//! libhakmem.so; libhakmem.a is to lie beside it.
#![allow(dead_code)] // each test program uses a part

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

/// None: the tests have nothing to preload, and say so.
pub fn library() -> Option<PathBuf> {
    let library = std::env::var_os("HAKMEM_LIBRARY").map(PathBuf::from);
    if library.is_none() {
        eprintln!("skipped: HAKMEM_LIBRARY names no libhakmem.so");
    }
    library.map(|path| fs::canonicalize(path).expect("HAKMEM_LIBRARY is a file"))
}

/// A command that runs on, such as a server; it ends with its value.
pub struct Running(pub Child);

impl Running {
    /// The command, and the first line that it prints.
    pub fn start(command: &mut Command) -> (Running, String) {
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (running, line.trim().to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address and token in http://ADDRESS/TOKEN/metrics.
pub fn address_and_token(line: &str) -> (&str, &str) {
    let (address, rest) = line.strip_prefix("http://").unwrap().split_once('/').unwrap();
    (address, rest.strip_suffix("/metrics").unwrap())
}

/// A copy that can be started at once: a file that this process writes is busy while a child that another test forks
/// has it open.
pub fn copy_by_other_process(from: &str, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// A directory of this process in Cargo's, for the same tests may run elsewhere at the same time. Those of processes
/// that have ended are removed.
pub fn own_directory(name: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in fs::read_dir(all).unwrap().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let pid = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let own = all.join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&own).unwrap();
    fs::canonicalize(own).unwrap()
}

pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = own_directory("heap");
        compile(&directory, "program", "program", &["-pthread"]);
        compile(&directory, "program", "plain-static", &["-pthread", "-static"]);
        compile(&directory, "held", "held", &["-pthread"]);
        compile(&directory, "shim", "shim.so", &["-shared", "-fPIC"]);
        if let Some(archive) = library().map(|library| library.with_file_name("libhakmem.a")) {
            let archive = archive.to_str().unwrap();
            compile(&directory, "evil", "evil", &["-pthread", archive]);
            compile(&directory, "program", "static", &["-pthread", "-static", "-Wl,--gc-sections", archive]);
            let stripped = Command::new("strip").args(["-o", "stripped", "static"]).current_dir(&directory).status();
            assert!(stripped.expect("the tests need strip").success());
        }
        directory
    })
}

pub fn compile(directory: &Path, source: &str, target: &str, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/heap").join(source).with_extension("c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fno-builtin", "-w", "-o"]).arg(directory.join(target)).arg(source).args(flags);
    assert!(cc.status().expect("the tests need cc").success());
}

/// A program that answers each line it is sent; it ends with the test.
pub struct Program {
    pub child: Child,
    pub input: ChildStdin,
    pub output: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(command: &mut Command) -> Program {
        let mut child =
            command.env_remove("HAKMEM_LIBRARY").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Program { child, input, output }
    }

    /// The known one, preloaded.
    pub fn known(library: &Path, environment: &[(&str, &str)]) -> Program {
        let mut command = Command::new(directory().join("program"));
        Program::start(command.env("LD_PRELOAD", library).envs(environment.iter().copied()))
    }

    /// Sends a line, returns what comes back up to `end`.
    pub fn ask(&mut self, line: &str, end: &str) -> Vec<String> {
        writeln!(self.input, "{line}").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut answer = String::new();
            assert!(self.output.read_line(&mut answer).unwrap() > 0, "the program ended");
            if answer.trim() == end {
                return lines;
            }
            lines.push(answer.trim().to_string());
        }
    }

    pub fn tell(&mut self, line: &str) {
        self.ask(line, "done");
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn hakmem(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hakmem"));
    command.args(arguments).env_remove("LD_PRELOAD").stdin(Stdio::null()).output().unwrap()
}

pub fn json(arguments: &[&str]) -> Value {
    let output = hakmem(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

pub fn explain(pid: &str) -> Value {
    json(&["explain", pid, "--json"])
}

/// What the command says when it refuses.
pub fn refusal(arguments: &[&str]) -> String {
    let output = hakmem(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap().trim_end().to_string()
}

/// What is said of wrong options: one line.
pub fn refusal_of_usage(arguments: &[&str]) -> String {
    let said = refusal(arguments);
    assert!(said.starts_with("hakmem: ") && said.lines().count() == 1, "{said}");
    said
}

pub fn text(arguments: &[&str]) -> String {
    let output = hakmem(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes an object file with a function `leaf` that calls malloc. Its debug information claims that `calls` inlined
/// calls are nested there, and names `link` as the file that several debug files share.
pub fn nested(directory: &Path, calls: usize, link: &Path) -> PathBuf {
    let head = r#".text
.globl leaf
.type leaf,@function
leaf: .cfi_startproc
 subq $8,%rsp
 .cfi_def_cfa_offset 16
 call malloc@PLT
 addq $8,%rsp
 .cfi_def_cfa_offset 8
 ret
 .cfi_endproc
leaf_end: .size leaf,.-leaf
.section .debug_abbrev,"",@progbits
.uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0,0
.uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 3; .uleb128 8
.uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0,0
.uleb128 3; .uleb128 0x1d; .byte 1; .byte 0,0
.byte 0
.section .debug_info,"",@progbits
.long unit_end-unit
unit: .short 4
.long 0
.byte 8
.uleb128 1; .quad leaf; .quad leaf_end-leaf
.uleb128 2; .asciz "leaf"; .quad leaf; .quad leaf_end-leaf
"#;
    let tail = format!(
        ".fill {calls},1,3\n.fill {calls},1,0\n.byte 0,0\nunit_end:\n.section .gnu_debugaltlink,\"\",@progbits\n\
         .asciz \"{}\"\n.fill 20,1,7\n.section .note.GNU-stack,\"\",@progbits\n",
        link.display()
    );
    let source = directory.join(format!("nested{calls}.s"));
    fs::write(&source, head.to_string() + &tail).unwrap();
    source
}

pub fn cc(directory: &Path, target: &str, arguments: &[&OsStr]) -> PathBuf {
    let target = directory.join(target);
    assert!(Command::new("cc").arg("-o").arg(&target).args(arguments).status().unwrap().success());
    target
}

/// A program whose debug information has 400,000 inlined calls, one within the other. It is sampled, and holds blocks.
pub fn program_of_nested_calls(place: &Path, library: &Path) -> Program {
    let main = place.join("main.c");
    let code = "extern void *leaf(long); void *volatile kept[20000];\n#include <stdio.h>\n\
        int main(void) { for (int i = 0; i < 20000; i++) kept[i] = leaf(1000);\n\
        puts(\"ready\"); fflush(stdout); getchar(); }\n";
    fs::write(&main, code).unwrap();
    let source = nested(place, 400_000, Path::new("/dev/null"));
    let program = cc(place, "program", &[main.as_os_str(), source.as_os_str()]);
    let environment = [("HAKMEM_PROFILE", "1"), ("HAKMEM_PROFILE_BYTES", "10000")];
    let mut program = Program::start(Command::new(program).env("LD_PRELOAD", library).envs(environment));
    program.output.read_line(&mut String::new()).unwrap();
    program
}
