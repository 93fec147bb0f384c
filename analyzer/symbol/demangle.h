/* Names as linkers know them → names as people wrote them. The one place for it: the recorder writes
 * addresses, never names. */
#ifndef GPUSPY_SYMBOL_DEMANGLE_H
#define GPUSPY_SYMBOL_DEMANGLE_H

/* C++ (Itanium ABI) and Rust (v0 and legacy, without the hash) demangled, anything else as it is; the
 * symbol's version ("@@GLIBC_2.34") and LLVM's suffix (".llvm.123") are left out. To be freed; NULL
 * only where memory ran out. Any bytes are safe. */
char *symbol_demangle(const char *name);

#endif
