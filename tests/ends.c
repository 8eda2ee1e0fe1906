/* For ./hak soak conditions: also a program that ends by abort or _exit, and what runs at the end, says what it has
 * reached. Linked into the library and into each test with --wrap=abort and --wrap=_exit. */
/* SPDX-License-Identifier: MIT */
int __llvm_profile_write_file(void);
_Noreturn void __real_abort(void), __real__exit(int status), __wrap_abort(void), __wrap__exit(int status);

void __wrap_abort(void) {
    __llvm_profile_write_file();
    __real_abort();
}

void __wrap__exit(int status) {
    __llvm_profile_write_file();
    __real__exit(status);
}

/* After the library's own, of priority 101. */
__attribute__((destructor(100))) static void at_end(void) { __llvm_profile_write_file(); }
