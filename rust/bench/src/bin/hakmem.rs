// SPDX-License-Identifier: MIT
#[path = "../work.rs"]
mod work;

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

fn main() {
    work::run();
}
