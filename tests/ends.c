/* For ./hak soak conditions: a program that ends by abort or _exit, and what runs at the end of a process, says what it
 * has reached, too. Linked into the library and into each test with --wrap=abort and --wrap=_exit. Here, as clang's own
 * way to write at exit is too early, and would count what it wrote before once more. */
/* SPDX-License-Identifier: MIT */
int __llvm_profile_runtime, __llvm_profile_write_file(void);
void __llvm_profile_initialize_file(void), __llvm_profile_reset_counters(void);
_Noreturn void __real_abort(void), __real__exit(int status), __wrap_abort(void), __wrap__exit(int status);

static void write_reached(void) {
    __llvm_profile_write_file();
    __llvm_profile_reset_counters();
}

void __wrap_abort(void) {
    write_reached();
    __real_abort();
}

void __wrap__exit(int status) {
    write_reached();
    __real__exit(status);
}

__attribute__((constructor)) static void at_start(void) { __llvm_profile_initialize_file(); }
/* After the library's own, of priority 101. */
__attribute__((destructor(100))) static void at_end(void) { write_reached(); }
