/* dlopen(file, mode): ask the filter for the mode, then jump to the real function with the caller's
 * own return address in place. See door_dlopen.c. */

#if defined(__x86_64__)

    .text
    .hidden gs_dlopen_filter
    .hidden gs_dlopen_at
    .globl dlopen
    .type dlopen, @function
dlopen:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    call gs_dlopen_filter
    popq %rdi
    .cfi_adjust_cfa_offset -8
    movl %eax, %esi
    jmp *gs_dlopen_at(%rip)
    .cfi_endproc
    .size dlopen, . - dlopen

#elif defined(__aarch64__)

    .text
    .hidden gs_dlopen_filter
    .hidden gs_dlopen_at
    .globl dlopen
    .type dlopen, %function
dlopen:
    .cfi_startproc
    hint #34                        /* bti c */
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    str x0, [sp, #16]
    bl gs_dlopen_filter
    mov w1, w0
    ldr x0, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    adrp x16, gs_dlopen_at
    ldr x16, [x16, :lo12:gs_dlopen_at]
    br x16
    .cfi_endproc
    .size dlopen, . - dlopen

#endif

    .section .note.GNU-stack, "", %progbits
