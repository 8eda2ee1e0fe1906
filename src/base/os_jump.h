/* A function that looks at its arguments and then jumps to another, so that whoever called it is that one's caller.
 * libc's dlopen looks for libraries as the caller's RUNPATH says, and in the caller's namespace. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

/* What it does first: may change the arguments, three, each as wide as a register. Returns where to jump. HAK_KEPT, and
 * not static. */
typedef uintptr_t os_jump_choice(uintptr_t *arguments);

/* Defines the exported function `name`; `choose`: an os_jump_choice. Both are strings. */
#if defined(__x86_64__)
#define OS_JUMP(name, choose)                                                                                          \
    __asm__(".text\n\t.p2align 4\n\t.globl " name "\n\t.type " name ", @function\n" name ":\n\t"                       \
            ".cfi_startproc\n\tendbr64\n\tsubq $40, %rsp\n\t.cfi_adjust_cfa_offset 40\n\t"                             \
            "movq %rdi, (%rsp)\n\tmovq %rsi, 8(%rsp)\n\tmovq %rdx, 16(%rsp)\n\t"                                       \
            "movq %rsp, %rdi\n\tcall " choose "\n\t"                                                                   \
            "movq (%rsp), %rdi\n\tmovq 8(%rsp), %rsi\n\tmovq 16(%rsp), %rdx\n\t"                                       \
            "addq $40, %rsp\n\t.cfi_adjust_cfa_offset -40\n\tjmp *%rax\n\t"                                            \
            ".cfi_endproc\n\t.size " name ", .-" name)
#elif defined(__aarch64__) /* hint #34 is bti c; a jump by way of x16 may go where a call may */
#define OS_JUMP(name, choose)                                                                                          \
    __asm__(".text\n\t.p2align 4\n\t.globl " name "\n\t.type " name ", %function\n" name ":\n\t"                       \
            ".cfi_startproc\n\thint #34\n\tstp x29, x30, [sp, #-48]!\n\t.cfi_adjust_cfa_offset 48\n\t"                 \
            ".cfi_rel_offset x29, 0\n\t.cfi_rel_offset x30, 8\n\tmov x29, sp\n\t"                                      \
            "stp x0, x1, [sp, #16]\n\tstr x2, [sp, #32]\n\tadd x0, sp, #16\n\tbl " choose "\n\t"                       \
            "mov x16, x0\n\tldp x0, x1, [sp, #16]\n\tldr x2, [sp, #32]\n\tldp x29, x30, [sp], #48\n\t"                 \
            ".cfi_adjust_cfa_offset -48\n\t.cfi_restore x29\n\t.cfi_restore x30\n\tbr x16\n\t"                         \
            ".cfi_endproc\n\t.size " name ", .-" name)
#else
#define OS_JUMP(name, choose)                                                                                          \
    __asm__(".text\n\t.p2align 2\n\t.globl " name "\n\t.type " name ", @function\n" name ":\n\t"                       \
            ".cfi_startproc\n\taddi sp, sp, -32\n\t.cfi_adjust_cfa_offset 32\n\tsd ra, 24(sp)\n\t"                     \
            ".cfi_rel_offset ra, 24\n\tsd a0, 0(sp)\n\tsd a1, 8(sp)\n\tsd a2, 16(sp)\n\tmv a0, sp\n\t"                 \
            "call " choose "\n\tmv t1, a0\n\tld a0, 0(sp)\n\tld a1, 8(sp)\n\tld a2, 16(sp)\n\tld ra, 24(sp)\n\t"       \
            "addi sp, sp, 32\n\t.cfi_adjust_cfa_offset -32\n\t.cfi_restore ra\n\tjr t1\n\t"                            \
            ".cfi_endproc\n\t.size " name ", .-" name)
#endif
