/* test_code_word.c - functions of few instructions, as gcc 12 and clang 14 compile them and as ld links them, and such as are none
 * (recorder/guest/code_word.c). */
#define _GNU_SOURCE
#include "../../recorder/guest/code_word.c"
#include "check.h"

#include <stddef.h>

#if defined(__x86_64__)

#define ROOM 64u

/* The module: code, a runtime with the word, and the runtime's address, as a global offset table has it. */
static struct module {
	uint8_t code[ROOM];
	uintptr_t runtime[32], table;
	uintptr_t index[2]; /* of a thread's variable: module and offset */
} module;
static ElfW(Phdr) segment = { .p_type = PT_LOAD, .p_memsz = sizeof module };
static struct dl_phdr_info info = { .dlpi_phdr = &segment, .dlpi_phnum = 1 };

bool tm_symbols_is_in(const struct dl_phdr_info *in, uintptr_t address) {
	return address - in->dlpi_addr < segment.p_memsz;
}

static __thread void *variable;

static void *self(void) {
	return __builtin_thread_pointer();
}

/* Instructions in hexadecimal; "WORD" stands for the distance to the 4th word of the runtime, "ADDRESS" for that to the runtime, "TABLE" for that to its
 * address, "INDEX" for that to a thread variable's; a digit behind says how many bytes of the instruction follow. "SELF0" stands for where the variable lies
 * from the thread's descriptor. */
static void put(const char *text) {
	static const struct {
		const char *name;
		const void *place;
	} places[] = { { "WORD", &module.runtime[3] },
		       { "ADDRESS", module.runtime },
		       { "TABLE", &module.table },
		       { "INDEX", module.index },
		       { "SELF", NULL } };
	uint8_t *to = module.code;
	memset(module.code, 0xcc, sizeof module.code);
	while (*text) {
		while (*text == ' ') text++;
		bool done = false;
		for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
			size_t n = strlen(places[i].name);
			if (strncmp(text, places[i].name, n) != 0) continue;
			const uint8_t *from = to + 4 + (text[n] - '0');
			int32_t distance = (int32_t)(places[i].place ? (const uint8_t *)places[i].place - from
								     : (const uint8_t *)&variable - (const uint8_t *)self());
			memcpy(to, &distance, sizeof distance);
			to += 4;
			text += n + 1;
			done = true;
		}
		if (done || !*text) continue;
		*to++ = (uint8_t)strtoul((char[]){ text[0], text[1], 0 }, NULL, 16);
		text += 2;
	}
	info.dlpi_addr = (uintptr_t)&module;
	module.table = (uintptr_t)module.runtime;
}

static uintptr_t word_of(const char *text, bool is_not_0) {
	put(text);
	return tm_code_word(&info, (uintptr_t)module.code, is_not_0);
}

#define IS_WORD (uintptr_t) & module.runtime[3]

static void test_what_compilers_write(void) {
	/* gcc: the runtime in the same executable, by the table; each marked for indirect branches, and with the frame of an unoptimized leaf. */
	CHECK(word_of("488b05WORD0 4885c0 0f95c0 0fb6c0 c3", true) == IS_WORD);
	CHECK(word_of("488b05TABLE0 488b4018 4885c0 0f95c0 0fb6c0 c3", true) == IS_WORD);
	CHECK(word_of("f30f1efa 488b05WORD0 4885c0 0f95c0 0fb6c0 c3", true) == IS_WORD);
	CHECK(word_of("f30f1efa 55 488b05TABLE0 4889e5 488b8018000000 5d 4885c0 0f95c0 0fb6c0 c3", true) == IS_WORD);
	/* clang, the same; and the table's entry that the linker did without. */
	CHECK(word_of("31c0 48833dWORD1 00 0f95c0 c3", true) == IS_WORD);
	CHECK(word_of("488b0dTABLE0 31c0 4883791800 0f95c0 c3", true) == IS_WORD);
	CHECK(word_of("f30f1efa 55 4889e5 488b0dTABLE0 31c0 4883b91800000000 0f95c0 5d c3", true) == IS_WORD);
	CHECK(word_of("488d0dADDRESS0 31c0 4883791800 0f95c0 c3", true) == IS_WORD);
	CHECK(word_of("488d05ADDRESS0 488b4018 c3", false) == IS_WORD);
	CHECK(word_of("488b05WORD0 c3", false) == IS_WORD);
	CHECK(word_of("f30f1efa 55 4889e5 488b05TABLE0 488b4018 5d c3", false) == IS_WORD);
	CHECK(word_of("488b0dTABLE0 488b4118 c3", false) == IS_WORD);
}

static void test_what_is_something_else(void) {
	CHECK(!word_of("488b05WORD0 4885c0 0f95c0 0fb6c0 c3", false));          /* whether, not what */
	CHECK(!word_of("488b05WORD0 c3", true));                                /* what, not whether */
	CHECK(!word_of("488b0dWORD0 c3", false));                               /* in another register than the answer's */
	CHECK(!word_of("488b05WORD0 4885c0 0f95c0 c3", true));                  /* of the answer's bytes three are not said */
	CHECK(!word_of("488b05WORD0 4885c0 0f94c0 0fb6c0 c3", true));           /* whether it is 0 */
	CHECK(!word_of("31c0 48833dWORD1 01 0f95c0 c3", true));                 /* whether it is not 1 */
	CHECK(!word_of("488b05WORD0 4885c9 0f95c0 0fb6c0 c3", true));           /* of another register */
	CHECK(!word_of("488b05TABLE0 488b4918 4885c0 0f95c0 0fb6c0 c3", true)); /* through another register */
	CHECK(!word_of("488b05TABLE0 488b4018 488b4018 c3", false));            /* a word of what the word points to */
	CHECK(!word_of("488b05TABLE0 31c0 488b4018 c3", false));                /* through a register that is empty by then */
	CHECK(!word_of("488b05WORD0 48ffc0 c3", false));                        /* one more */
	CHECK(!word_of("e800000000 488b05WORD0 c3", false));                    /* after a call */
	CHECK(!word_of("488b05WORD0 0fb6c0 c3", false));                        /* its lowest byte */
	CHECK(!word_of("488b05WORD0 488b05WORD0 c3", false));                   /* twice */
	CHECK(!word_of("31c0 c3", true) && !word_of("c3", false) && !word_of("31c0 0f95c0 c3", true));
	CHECK(!word_of("f30f1efa f30f1efa f30f1efa f30f1efa f30f1efa f30f1efa f30f1efa f30f1efa f30f1efa f30f1efa 488b05WORD0 c3",
		       false)); /* long */
}

/* Before the module is relocated the table says something else; and what lies elsewhere is not read. */
static void test_words_of_other_modules(void) {
	word_of("488b05TABLE0 488b4018 c3", false);
	module.table = 0x18;
	CHECK(!tm_code_word(&info, (uintptr_t)module.code, false));
	module.table = (uintptr_t)module.runtime + 1; /* no word */
	CHECK(!tm_code_word(&info, (uintptr_t)module.code, false));
	segment.p_memsz = offsetof(struct module, runtime);
	CHECK(!word_of("488b05WORD0 c3", false) && !word_of("488b05TABLE0 488b4018 c3", false));
	segment.p_memsz = READER_BYTES_MAX - 1; /* the function might go on behind the module's end */
	CHECK(!word_of("488b05WORD0 c3", false));
	segment.p_memsz = sizeof module;
	CHECK(word_of("488b05WORD0 c3", false) == IS_WORD);
}

static int find_index(struct dl_phdr_info *of, size_t size, void *context) {
	(void)size;
	(void)context;
	if (of->dlpi_name[0]) return 0;
	module.index[0] = of->dlpi_tls_modid;
	module.index[1] = (uintptr_t)&variable - (uintptr_t)of->dlpi_tls_data;
	return 1;
}

static bool is_variable(const char *text) {
	put(text);
	return tm_code_thread_word((uintptr_t)module.code) == (uintptr_t)&variable;
}

/* Of the program itself, of a library that is loaded with it, and of any. */
static void test_variables_of_threads(void) {
	dl_iterate_phdr(find_index, NULL);
	CHECK(is_variable("64488b0425SELF0 c3"));
	CHECK(is_variable("f30f1efa 64488b0425SELF0 c3"));
	CHECK(is_variable("f30f1efa 55 4889e5 64488b0425SELF0 5d c3"));
	module.runtime[3] = (uintptr_t)&variable - (uintptr_t)self();
	CHECK(is_variable("488b05WORD0 64488b00 c3"));
	CHECK(is_variable("f30f1efa 55 4889e5 488b05WORD0 64488b00 5d c3"));
	CHECK(is_variable("4883ec08 66488d3dINDEX0 666648e800000000 488b00 4883c408 c3"));
	CHECK(is_variable("50 66488d3dINDEX0 666648e800000000 488b00 59 c3"));
	CHECK(is_variable("f30f1efa 55 4889e5 66488d3dINDEX0 666648e800000000 488b00 5d c3"));
	CHECK(is_variable("4883ec08 66488d3dINDEX0 6648ff1500000000 488b00 4883c408 c3"));
	CHECK(!is_variable("64488b0425SELF0 488b00 c3"));                                     /* what the variable points to */
	CHECK(!is_variable("64488b0425SELF0 64488b0425SELF0 c3"));                            /* twice */
	CHECK(!is_variable("4883ec08 66488d3dINDEX0 666648e800000000 488b4008 4883c408 c3")); /* the next one */
	CHECK(!is_variable("4883ec08 488d3dINDEX0 e800000000 488b00 4883c408 c3"));           /* of any function */
	CHECK(!is_variable("488b05WORD0 c3") && !is_variable("c3") && !is_variable("488b05WORD0 64488b01 c3"));
	CHECK(!is_variable("48ffc0 64488b0425SELF0 c3"));
}

int main(void) {
	test_variables_of_threads();
	test_what_compilers_write();
	test_what_is_something_else();
	test_words_of_other_modules();
	return check_report("code_word");
}

#else

int main(void) {
	CHECK(tm_code_word(NULL, 0, true) == 0); /* of other processors no instruction is known */
	return check_report("code_word");
}

#endif
