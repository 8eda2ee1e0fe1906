//! Statistics, options, limits and the heap profile, as safe functions.
// SPDX-License-Identifier: MIT
use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::fmt;
use core::hint;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

/// Why HAKMEM refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no option of that name.
    NoSuchOption,
    /// The option cannot have that value.
    InvalidValue,
    /// The option is only read at the start of the program.
    OnlyAtStart,
    /// There are no heap profiles in secure mode.
    SecureMode,
    /// The file cannot be written.
    File,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NoSuchOption => "there is no such option",
            Error::InvalidValue => "the option cannot have that value",
            Error::OnlyAtStart => "the option is only read at the start",
            Error::SecureMode => "there are no heap profiles in secure mode",
            Error::File => "the file cannot be written",
        })
    }
}

impl core::error::Error for Error {}

/// Calls `write` until the text fits the buffer, which `write` fills as `snprintf` does.
fn text_of(write: impl Fn(*mut c_char, usize) -> usize) -> String {
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let length = write(buffer.as_mut_ptr().cast(), buffer.len());
        if length < buffer.len() {
            buffer.truncate(length);
            return String::from_utf8_lossy(&buffer).into_owned();
        }
        buffer.resize(length + 512, 0); // the next text may be longer
    }
}

/// The version of the library, such as `"0.1.0"`.
pub fn version() -> &'static str {
    // SAFETY: the text is constant and terminated.
    unsafe { CStr::from_ptr(hakmem_sys::hak_version()) }.to_str().unwrap_or_default()
}

/// Gives free memory back to the operating system: the caches of this thread, free slots, and free pages. Returns how
/// many bytes that were.
pub fn trim() -> usize {
    // SAFETY: any thread may call it at any time.
    unsafe { hakmem_sys::hak_trim() }
}

/// The calling thread is about to wait, for a request or an event: what its caches hold, and the slabs from which it
/// allocates, become everybody's. Its next allocations take a little longer, once for each size, so it pays before long
/// waits: where a worker parks (tokio's `on_thread_park`), or an event loop has nothing to do.
pub fn thread_rests() {
    // SAFETY: any thread may call it at any time.
    unsafe { hakmem_sys::hak_thread_rests() }
}

/// The usable size that a block of `size` bytes would have: a capacity that wastes nothing. `None` if there can be no
/// such block.
pub fn good_size(size: usize) -> Option<usize> {
    // SAFETY: any size may be asked about.
    match unsafe { hakmem_sys::hak_good_size(size) } {
        0 => None,
        usable => Some(usable),
    }
}

/// The statistics at one moment.
///
/// ```
/// let before = hakmem::Stats::now();
/// println!("{} bytes resident", before.get("total").unwrap());
/// ```
#[derive(Clone, Debug)]
pub struct Stats {
    json: String,
}

impl Stats {
    /// Reads the statistics. The figures are exact if no other thread allocates meanwhile. The call asks the kernel
    /// which pages are resident: one system call for 2 MiB of heap.
    pub fn now() -> Stats {
        // SAFETY: the buffer has that many bytes.
        let json = text_of(|buffer, bytes| unsafe { hakmem_sys::hak_stats_json(buffer, bytes) });
        Stats { json }
    }

    /// The statistics as a JSON object.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// A figure by its name in the JSON text: `"live"`, `"total"` and the other terms of the resident bytes, or a
    /// counter such as `"realloc_copied"`.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.json.match_indices(name).find_map(|(at, _)| {
            let value = self.json[at + name.len()..].strip_prefix("\":")?;
            if !self.json[..at].ends_with('"') {
                return None;
            }
            let digits = value.find(|c: char| !c.is_ascii_digit())?;
            value[..digits].parse().ok()
        })
    }
}

/// Prints the statistics as text to the standard error.
pub fn print_stats() {
    // SAFETY: the descriptor need not be open.
    unsafe { hakmem_sys::hak_stats_print(2) }
}

/// The value of an option, as text. The name is that of the environment variable, with or without `HAKMEM_`.
pub fn option(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: errno is this thread's; the name is terminated, and the buffer has that many bytes.
    unsafe {
        *__errno_location() = 0;
        let text = text_of(|buffer, bytes| hakmem_sys::hak_option_get(name.as_ptr(), buffer, bytes));
        (*__errno_location() == 0).then_some(text)
    }
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int; // of glibc and musl
}

/// Sets an option to a value, written as in the environment.
///
/// ```
/// hakmem::set_option("PURGE", "eager")?;
/// hakmem::set_option("HARD_LIMIT", "2g")?;
/// # hakmem::set_option("HARD_LIMIT", "0")?;
/// # Ok::<(), hakmem::Error>(())
/// ```
pub fn set_option(name: &str, value: &str) -> Result<(), Error> {
    let c_name = CString::new(name).map_err(|_| Error::NoSuchOption)?;
    let c_value = CString::new(value).map_err(|_| Error::InvalidValue)?;
    // SAFETY: both are terminated.
    match unsafe { hakmem_sys::hak_option_set(c_name.as_ptr(), c_value.as_ptr()) } {
        0 => Ok(()),
        EPERM => Err(Error::OnlyAtStart),
        _ if option(name).is_none() => Err(Error::NoSuchOption),
        _ => Err(Error::InvalidValue),
    }
}

const EPERM: c_int = 1;

/// Options that [`options!`](crate::options!) compiles into a program.
#[doc(hidden)]
#[repr(transparent)]
pub struct CompiledOptions(*const c_char);

// SAFETY: the text is constant.
unsafe impl Sync for CompiledOptions {}

impl CompiledOptions {
    pub const fn new(text: &'static CStr) -> CompiledOptions {
        CompiledOptions(text.as_ptr())
    }
}

/// Compiles options into the program, once. The environment takes precedence.
///
/// ```
/// hakmem::options!(c"PURGE=eager,HUGE_PAGES=never");
/// ```
#[macro_export]
macro_rules! options {
    ($text:expr) => {
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static hak_options: $crate::CompiledOptions = $crate::CompiledOptions::new($text);
    };
}

/// Sets the function to call when the heap passes the option `SOFT_LIMIT`: once each time, at the end of the allocation
/// that passed the limit, in its thread.
///
/// The function may allocate, free, and call everything here except this function. A panic in it ends the program. It
/// must not wait for a lock under which the program allocates.
pub fn on_soft_limit(call: Option<fn()>) {
    static IS_BEING_SET: AtomicBool = AtomicBool::new(false); // the library lets one thread at a time
    while IS_BEING_SET.swap(true, Ordering::Acquire) {
        hint::spin_loop();
    }
    // SAFETY: `soft_limit_passed` is called with one of these arguments.
    unsafe {
        match call {
            Some(call) => hakmem_sys::hak_set_soft_limit_callback(Some(soft_limit_passed), call as *mut c_void),
            None => hakmem_sys::hak_set_soft_limit_callback(None, ptr::null_mut()),
        }
    }
    IS_BEING_SET.store(false, Ordering::Release);
}

unsafe extern "C" fn soft_limit_passed(call: *mut c_void) {
    // SAFETY: `on_soft_limit` made the argument of such a function.
    let call = unsafe { mem::transmute::<*mut c_void, fn()>(call) };
    call();
}

/// Begins to sample allocations for the heap profile: one every `mean_bytes` bytes on average; 0 means the option
/// `PROFILE_BYTES`. The `hakmem` command reads the profile of the running program.
pub fn start_profile(mean_bytes: usize) -> Result<(), Error> {
    // SAFETY: any thread may call it at any time.
    match unsafe { hakmem_sys::hak_profile_start(mean_bytes) } {
        0 => Ok(()),
        _ => Err(Error::SecureMode),
    }
}

/// Writes what was sampled so far to a file of this name, for `hakmem flame`. `%p` in the name becomes the process ID,
/// and `%n` the number of the file among those that the process has written.
pub fn dump_profile(path: &CStr) -> Result<(), Error> {
    // SAFETY: the path is terminated.
    match unsafe { hakmem_sys::hak_profile_dump(path.as_ptr()) } {
        0 => Ok(()),
        _ if option("SECURE").as_deref() == Some("1") => Err(Error::SecureMode),
        _ => Err(Error::File),
    }
}

/// Stops sampling. The profile stays, and still records when sampled blocks are freed.
pub fn stop_profile() {
    // SAFETY: any thread may call it at any time.
    unsafe { hakmem_sys::hak_profile_stop() }
}
