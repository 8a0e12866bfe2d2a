/* test_demangle.c - the names that symbols get, and symbols made to hurt.
 *
 * Method: a table of symbols and names written by hand (checked against c++filt and rustc-demangle's own examples); symbols that nest,
 * refer back and expand without end, which must come back in bounded length; random symbols made of the letters that mangling uses.
 */
#include "recorder/collector/demangle.h"

#include "check.h"

static struct tm_bytes name;

static void expect(const char *symbol, const char *wanted) {
	const char *got = tm_demangle(&name, symbol);
	if (!CHECK(got && !strcmp(got, wanted))) printf("  %.200s\n  is  %.300s\n  not %s\n", symbol, got ? got : "(none)", wanted);
	if (got) CHECK(strlen(got) == name.size);
}

static void names_of_every_day(void) {
	expect("main", "main");
	expect("_start", "_start");
	expect("__libc_malloc", "__libc_malloc");
	expect("_ZN3foo3barEi", "foo::bar(int)");
	expect("_Z3addIdET_S0_S0_", "double add<double>(double, double)");
	expect("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)");
	expect("_ZN3FooC2Ev", "Foo::Foo()");
	expect("_ZN3FooD0Ev", "Foo::~Foo()");
	expect("_ZN12_GLOBAL__N_16hiddenEv", "(anonymous namespace)::hidden()");
	expect("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()(int) const");
	expect("_Znwm", "operator new(unsigned long)");
	expect("_ZThn16_N3Foo3barEv", "non-virtual thunk to Foo::bar()");
	expect("_ZGVZ3foovE1x", "guard variable for foo()::x");
	expect("__gmon_start__", "__gmon_start__");
	expect("i", "i"); /* not the type int */
	expect("", "");
}

static void rust(void) {
	expect("_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place");
	expect("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
	       "<Test + 'static as foo::Bar<Test>>::bar");
	expect("_RNvCs4fqI2P2rA04_13const_generic3foo", "const_generic::foo");
	expect("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar");
	expect("_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}");
	expect("_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_ECs1iopQbuBiw2_3std",
	       "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>");
	expect("_ZN4core3ptr13drop_in_place17h0123456789abcdefE.llvm.1234567890", "core::ptr::drop_in_place");
}

static void suffixes(void) {
	expect("memcpy@@GLIBC_2.14", "memcpy");
	expect("work.constprop.0", "work");
	expect("work.isra.0.constprop.12", "work");
	expect("work.part.0.cold", "work");
	expect("_Z4worki.cold", "work(int)");
	expect("_Z4worki.lto_priv.3", "work(int)");
	expect("inner.0", "inner");                 /* a nested function of GNU C */
	expect("main._omp_fn.0", "main._omp_fn.0"); /* a function of its own */
	expect("fast.avx2", "fast.avx2");
	expect("main.func1", "main.func1"); /* Go */
	expect("work.", "work.");
	expect(".cold", ".cold");
	expect("@strange", "@strange");
}

static void bounded(const char *symbol, const char *what) {
	const char *got = tm_demangle(&name, symbol);
	if (!CHECK(got && name.size <= TM_DEMANGLE_MAX_BYTES + 3)) printf("  %s\n", what);
	if (got && name.size > TM_DEMANGLE_MAX_BYTES) CHECK(!strcmp(got + TM_DEMANGLE_MAX_BYTES, "..."));
}

/* prefix, n times middle, suffix */
static char *repeat(const char *prefix, const char *middle, size_t n, const char *suffix) {
	size_t step = strlen(middle), at = strlen(prefix);
	char *out = malloc(at + n * step + strlen(suffix) + 1);
	memcpy(out, prefix, at);
	for (size_t i = 0; i < n; i++, at += step) memcpy(out + at, middle, step);
	strcpy(out + at, suffix);
	return out;
}

/* Longer than libiberty's own limit, as templates of numeric libraries are: still demangled. */
static void long_but_honest(void) {
	char *symbol = repeat("_Z3fooI", "St4pairIiiE", 300, "Evv");
	const char *got = tm_demangle(&name, symbol);
	CHECK(strlen(symbol) > 3000 && got && !strncmp(got, "void foo<std::pair<int, int>, std::pair<", 40));
	CHECK(got && !strcmp(got + name.size - 3, ">()"));
	free(symbol);
	symbol = repeat("", "name_of_a_function_", 10000, "");
	got = tm_demangle(&name, symbol);
	CHECK(name.size == TM_DEMANGLE_MAX_BYTES + 3 && got && !strncmp(got, symbol, TM_DEMANGLE_MAX_BYTES) && strstr(got, "_..."));
	free(symbol);
}

/* The n-th thing that was mangled before, counted from 0: S_, S0_ ... SZ_, S10_ ... */
static void put_substitution(char *out, unsigned n) {
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	if (n == 0) sprintf(out, "S_");
	else if (n <= 36) sprintf(out, "S%c_", digits[n - 1]);
	else sprintf(out, "S%c%c_", digits[(n - 1) / 36], digits[(n - 1) % 36]);
}

/* Each substitution stands for twice what the one before it stands for: 2^60 types in 658 bytes. */
static void doubling(void) {
	char symbol[4096] = "_Z1f1TIiiE", reference[8];
	for (unsigned i = 1; i <= 60; i++) {
		put_substitution(reference, i);
		sprintf(symbol + strlen(symbol), "S_I%s%sE", reference, reference);
	}
	bounded(symbol, "doubling substitutions");
	CHECK(name.size == TM_DEMANGLE_MAX_BYTES + 3);
}

/* A number as Rust's references back write it. */
static void put_base62(char *out, unsigned n) {
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	if (n == 0) sprintf(out, "_");
	else if (n <= 62) sprintf(out, "%c_", digits[n - 1]);
	else sprintf(out, "%c%c_", digits[(n - 1) / 62], digits[(n - 1) % 62]);
}

static void doubling_in_rust(void) {
	char symbol[4096] = "_RIC1aTuuE", reference[8];
	unsigned before = 4; /* where the last tuple begins, behind the _R */
	for (int i = 0; i < 60; i++) {
		unsigned here = (unsigned)strlen(symbol) - 2;
		put_base62(reference, before);
		sprintf(symbol + strlen(symbol), "TB%sB%sE", reference, reference);
		before = here;
	}
	strcat(symbol, "E");
	bounded(symbol, "doubling references back");
	CHECK(name.size == TM_DEMANGLE_MAX_BYTES + 3);
}

static void made_to_hurt(void) {
	static const struct {
		const char *prefix, *middle, *suffix;
	} shapes[] = {
		{ "_Z1f", "P", "i" },
		{ "_Z1f", "R", "i" },
		{ "_Z1fI", "X", "E" },
		{ "_Z", "N", "" },
		{ "_Z1fI", "I", "E" },
		{ "_Z1f", "F", "vE" },
		{ "_Z1f", "A_", "i" },
		{ "_Z1f", "M1a", "i" },
		{ "_Z1fIX", "ng", "Li1EEEvv" },
		{ "_Z1f", "Dp", "i" },
		{ "_Z1fIX", "plLi1E", "Li1EEEvv" },
		{ "_ZL", "1aIL", "" },
		{ "_Z", "Z1fvE", "1x" },
		{ "_ZN", "1a", "E" },
		{ "_Z1fIJ", "J", "E" },
		{ "_R", "Y", "" },
		{ "_RNvC1a", "R", "" },
		{ "_RIC1a", "RT", "E" },
		{ "_RM", "I", "" },
		{ "_ZN", "3$LT", "17h0123456789abcdefE" },
		{ "_Z1f", "1TIS0_S0_E", "" },
		{ "_Z1f", "DTcl", "E" },
		{ "_Z1fIXcv", "PF", "E" },
	};
	static const size_t times[] = { 10, 400, 1000, 2500, 5000, 8000, 16000, 100000 };
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
			char *symbol = repeat(shapes[i].prefix, shapes[i].middle, times[k], shapes[i].suffix);
			bounded(symbol, shapes[i].middle);
			free(symbol);
		}
}

static void random_symbols(void) {
	static const char *const pieces[] = { "_Z",
					      "_R",
					      "N",
					      "E",
					      "S_",
					      "S0_",
					      "S1_",
					      "T_",
					      "T0_",
					      "I",
					      "J",
					      "X",
					      "L",
					      "St",
					      "Sa",
					      "Ss",
					      "1a",
					      "3foo",
					      "C1",
					      "D0",
					      "Ul",
					      "UlvE_",
					      "Ut_",
					      "P",
					      "R",
					      "K",
					      "F",
					      "v",
					      "i",
					      "M",
					      "A3_",
					      "Dp",
					      "DT",
					      "cl",
					      "pl",
					      "sr",
					      "Z",
					      "B4_",
					      "B_",
					      "Nv",
					      "C1a",
					      "$LT$",
					      "17h0123456789abcdefE",
					      ".",
					      "cold",
					      "9999999999",
					      "u",
					      "G",
					      "Y",
					      "s_",
					      "dl",
					      "nw",
					      "fp",
					      "_" };
	struct check_random random = check_random_start("test_demangle");
	char symbol[8192];
	for (int i = 0; i < 20000; i++) {
		size_t n = check_random_below(&random, i % 100 ? 40 : 1500);
		strcpy(symbol, check_random_below(&random, 4) ? "_Z" : "_R");
		for (size_t k = 0; k < n && strlen(symbol) < sizeof symbol - 40; k++)
			strcat(symbol, pieces[check_random_below(&random, sizeof pieces / sizeof *pieces)]);
		bounded(symbol, symbol);
	}
}

int main(void) {
	names_of_every_day();
	rust();
	suffixes();
	long_but_honest();
	doubling();
	doubling_in_rust();
	made_to_hurt();
	random_symbols();
	tm_bytes_release(&name);
	return check_report("test_demangle");
}
