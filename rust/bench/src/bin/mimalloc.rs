// SPDX-License-Identifier: MIT
#[path = "../work.rs"]
mod work;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    work::run();
}
