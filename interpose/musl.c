/* Keeps musl's loader from loading gpuspy into a program that a recorded one starts.
 *
 * A library of glibc's cannot be loaded by musl, and the program would not start. musl takes a library that defines
 * both symbols below for a C library and skips it (map_library in its ldso/dynlink.c). Programs of glibc's look for
 * other versions of them; one that states no version gets what the C library has. */

#ifdef __x86_64__
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

typedef int main_function(int, char **, char **);

extern char _IO_2_1_stdin_; /* to which the C library's stdin points */
int gs_libc_start(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int gs_musl_start(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
extern void *gs_musl_stdin;

__asm__(".symver gs_libc_start, __libc_start_main@" FIRST_VERSION);
__asm__(".symver gs_musl_start, __libc_start_main@@GPUSPY");
__asm__(".symver gs_musl_stdin, stdin@@GPUSPY");

__attribute__((visibility("default"))) void *gs_musl_stdin = &_IO_2_1_stdin_;

__attribute__((visibility("default"))) int gs_musl_start(main_function *main, int argc, char **argv, void (*init)(void),
                                                         void (*fini)(void), void (*end)(void), void *stack_end)
{
    return gs_libc_start(main, argc, argv, init, fini, end, stack_end);
}
