// SPDX-License-Identifier: MIT
#[path = "../work.rs"]
mod work;

#[global_allocator]
static ALLOCATOR: std::alloc::System = std::alloc::System;

fn main() {
    work::run();
}
