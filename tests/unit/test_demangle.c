/* Mangled names: C++ compared with the C++ runtime's own demangler, Rust with its specification (RFC 2603 for v0;
 * core::fmt's tests for legacy names). */
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/symbol/demangle.h"

static void is(const char *mangled, const char *wanted)
{
    char *plain = symbol_demangle(mangled);

    assert_string_equal(plain, wanted);
    free(plain);
}

static void cpp_names(void **state)
{
    (void)state;
    is("_ZN4deep5outerIiEET_S1_", "int deep::outer<int>(int)");
    is("_ZN2at5emptyEN3c108ArrayRefIlEENS0_13TensorOptionsE", "at::empty(c10::ArrayRef<long>, c10::TensorOptions)");
    is("_Znwm", "operator new(unsigned long)");
    is("_ZN12_GLOBAL__N_13fooEv", "(anonymous namespace)::foo()");
    is("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()(int) const");
    is("_ZN1AC2ERKS_", "A::A(A const&)");
    is("_ZNSt6vectorIPvSaIS0_EE9push_backERKS0_",
       "std::vector<void*, std::allocator<void*> >::push_back(void* const&)");
    is("_Z3foov.cold", "foo() [clone .cold]");
}

static void rust_names(void **state)
{
    (void)state;
    /* v0: RFC 2603's examples */
    is("_RNvC7mycrate4main", "mycrate::main");
    is("_RNvNtC7mycrate3foo3bar", "mycrate::foo::bar");
    is("_RINvNtC3std3mem8align_ofjdE", "std::mem::align_of::<usize, f64>");
    is("_RNvMC7mycrateNtB2_3Foo3bar", "<mycrate::Foo>::bar");
    is("_RNvXC7mycrateNtB2_3FooNtB2_3Bar3baz", "<mycrate::Foo as mycrate::Bar>::baz");
    is("_RNCNvC7mycrate4main0", "mycrate::main::{closure#0}");
    is("_RNvC6_123foo3bar", "123foo::bar");
    is("_RNvNtNtCs1234_7mycrate3foo3bar3baz", "mycrate::foo::bar::baz");
    /* legacy: without the hash */
    is("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE", "core::fmt::Formatter::write_str");
    is("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
       "<Test + 'static as foo::Bar<Test>>::bar");
    is("_ZN3foo17h05af221e174051e9E.llvm.9D1C9369", "foo");
}

static void procedures_of_fortran_modules(void **state)
{
    (void)state;
    is("__solver_MOD_advance", "solver::advance");
    is("_QMsolverPadvance", "solver::advance");
    is("solver_mp_advance_", "solver_mp_advance_"); /* Intel's, or C */
    is("MAIN__", "MAIN__");
    is("__MOD_x", "__MOD_x");
    is("_QM", "_QM");
    is("_QMsolver", "_QMsolver");
    is("_mp_x_", "_mp_x_");
    is("solver_mp_", "solver_mp_");
    is("gmp_mp_init", "gmp_mp_init");
}

static void other_names_stay(void **state)
{
    static const char *const names[] = {"",  "_",          "_Z", "_R",   "_ZN",        "_RNv",      "main",
                                        "@", "_Z\xff\xfe", "$x", "_Zzz", "_ZN3fooE17", "cudaMalloc"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) is(names[i], names[i]);
    is("qsort@@GLIBC_2.2.5", "qsort");
    is("_Znwm@@GLIBCXX_3.4", "operator new(unsigned long)");
}

/* vector<vector<…<int>…>>: occurs in real code, though the demangler's own limit is lower. */
static void long_names_are_demangled(void **state)
{
    enum { DEEP = 200 };
    char name[16 * DEEP], wanted[16 * DEEP + 16];
    size_t n = (size_t)sprintf(name, "_Z3foo");
    size_t w = (size_t)sprintf(wanted, "foo(");

    (void)state;
    for (int i = 0; i < DEEP; i++) {
        n += (size_t)sprintf(name + n, "4deepI");
        w += (size_t)sprintf(wanted + w, "deep<");
    }
    n += (size_t)sprintf(name + n, "i");
    w += (size_t)sprintf(wanted + w, "int");
    for (int i = 0; i < DEEP; i++) {
        n += (size_t)sprintf(name + n, "E");
        w += (size_t)sprintf(wanted + w, i ? " >" : ">");
    }
    sprintf(wanted + w, ")");
    assert_true(n > 1024);
    is(name, wanted);
}

/* Substitutions that double the name each time: a few bytes that would need more than any memory. */
static void names_that_explode_stay(void **state)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char bomb[1024], few[1024], *deep = malloc(1 << 20), *plain;
    size_t n = (size_t)sprintf(bomb, "_Z1f1AIiiE");

    (void)state;
    for (int i = 0; i < 37; i++) { /* A<last, last>: S0_, S1_, … SZ_, S10_ */
        n += i < 36 ? (size_t)sprintf(bomb + n, "S_IS%c_S%c_E", digits[i], digits[i])
                    : (size_t)sprintf(bomb + n, "S_IS10_S10_E");
        if (i == 2) memcpy(few, bomb, n + 1);
    }
    plain = symbol_demangle(few);
    assert_memory_equal(plain, "f(A<int, int>, A<A<int, int>, A<int, int> >, A<A<", 48);
    free(plain);
    is(bomb, bomb);
    for (size_t length = 900; length < 1 << 20; length *= 3) {
        memset(deep, 'P', length);
        memcpy(deep, "_Z1f", 4);
        deep[length - 1] = 'i';
        deep[length] = 0;
        plain = symbol_demangle(deep);
        assert_true(strncmp(plain, "f(int**", 7) == 0 || strcmp(plain, deep) == 0);
        free(plain);
    }
    free(deep);
}

CASES(cpp_names, rust_names, procedures_of_fortran_modules, other_names_stay, long_names_are_demangled,
      names_that_explode_stay)
