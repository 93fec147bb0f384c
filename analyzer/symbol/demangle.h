/* Mangled names → names as programmers write them. Only the analyzer demangles: the recorder writes addresses, never
 * names. */
#pragma once

/* C++ (Itanium ABI), Rust (v0 and legacy, without the hash) and procedures of Fortran modules (GNU's and LLVM's
 * compilers) demangled, anything else unchanged; the symbol's version ("@@GLIBC_2.34") and LLVM's suffix (".llvm.123")
 * are removed. Free the result; NULL only if memory ran out. Any bytes are safe. */
char *symbol_demangle(const char *name);
