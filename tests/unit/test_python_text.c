/* test_python_text.c - what the word says that stands in a str before its characters.
 *
 * Goal:    one byte a character or more, and ASCII or not, whatever lies in the bits that mean nothing.
 * Method:  words read out of CPython 3.14.10 with ctypes (id(text) + 32), and words put together by hand as the three layouts of CPython's
 *          unicodeobject.h have them: `interned` in 2 bits, in a byte (free-threaded builds), in 16 bits.
 */
#include "../../recorder/guest/python.h"
#include "check.h"

#define ASCII 0x19u /* one byte a character, compact, ascii */
#define LATIN 0x09u
#define TWO 0x0au
#define FOUR 0x0cu

static void seen(void) {
	CHECK(tm_python_text_bits(0x000000e7u) == ASCII); /* 'f', a static one */
	CHECK(tm_python_text_bits(0xffffff65u) == ASCII); /* 'Handle._run' */
	CHECK(tm_python_text_bits(0x66747566u) == ASCII); /* '_run', in memory that held a text before */
	CHECK(tm_python_text_bits(0x5c601464u) == ASCII); /* 'dyn1' */
	CHECK(tm_python_text_bits(0x00ba3f65u) == ASCII); /* 'abc1' */
	CHECK(tm_python_text_bits(0x000000a7u) == LATIN); /* an e with an acute accent */
	CHECK(tm_python_text_bits(0x00000024u) == LATIN); /* three y with a diaeresis */
	CHECK(tm_python_text_bits(0x00000028u) == TWO);
	CHECK(tm_python_text_bits(0x00000030u) == FOUR);
}

static void by_hand(void) {
	static const unsigned all[] = { ASCII, LATIN, TWO, FOUR };
	static const unsigned widths[] = { 2, 8, 16 };
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned w = 0; w < 3; w++) {
			for (uint32_t interned = 0; interned < 4; interned++) {
				uint32_t word = interned | all[i] << widths[w], behind = UINT32_MAX << (widths[w] + 5);
				CHECK(tm_python_text_bits(word) == all[i]);
				CHECK(tm_python_text_bits(word | behind) == all[i]);
				for (unsigned more = w + 1; more < 3; more++)
					for (unsigned k = 0; k < 4; k++)
						CHECK(tm_python_text_bits(word | all[k] << widths[more]) == all[i]);
			}
		}
	}
	CHECK(tm_python_text_bits(0) == 0);
	CHECK(tm_python_text_bits(3) == 0);
}

int main(void) {
	seen();
	by_hand();
	return check_report("python text");
}
