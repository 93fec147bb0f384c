/* dlsym(handle, name) and dlvsym(handle, name, version): ask the filter, then return its answer or
 * jump to the real function with the caller's own return address in place. See door_dlsym.c. */

#if defined(__x86_64__)

    .macro entry name, target, clear_version
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
    endbr64
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    .if \clear_version
    xorl %edx, %edx
    .endif
    call gs_dlsym_filter            /* rax: the answer, rdx: the handle to go on with */
    movq %rdx, %rdi
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jne 1f
    jmp *\target(%rip)
1:  ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    .text
    .hidden gs_dlsym_filter
    .hidden gs_dlsym_at
    .hidden gs_dlvsym_at
    entry dlsym, gs_dlsym_at, 1
    entry dlvsym, gs_dlvsym_at, 0

#elif defined(__aarch64__)

    .macro entry name, target, clear_version
    .globl \name
    .type \name, %function
\name:
    .cfi_startproc
    hint #34                        /* bti c */
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    stp x1, x2, [sp, #16]
    .if \clear_version
    mov x2, #0
    .endif
    bl gs_dlsym_filter              /* x0: the answer, x1: the handle to go on with */
    mov x9, x0
    mov x0, x1
    ldp x1, x2, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    cbnz x9, 1f
    adrp x16, \target
    ldr x16, [x16, :lo12:\target]
    br x16
1:  mov x0, x9
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm

    .text
    .hidden gs_dlsym_filter
    .hidden gs_dlsym_at
    .hidden gs_dlvsym_at
    entry dlsym, gs_dlsym_at, 1
    entry dlvsym, gs_dlvsym_at, 0

#endif

    .section .note.GNU-stack, "", %progbits
