// SPDX-License-Identifier: MIT
#[path = "../work.rs"]
mod work;

#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

fn main() {
    work::run();
}
