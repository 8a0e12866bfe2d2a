/* replay.c - runs a fuzz target over files, once each: what `make check` does with the corpus, and what a person does with a finding.
 *
 * usage: fuzz_NAME FILE...      `make fuzz` links libFuzzer in the place of this file
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The content of a file in memory that is exactly as long, so that a sanitizer sees a read behind it. */
static uint8_t *read_file(const char *path, size_t *size) {
	FILE *file = fopen(path, "rb");
	if (!file) return NULL;
	fseek(file, 0, SEEK_END);
	long length = ftell(file);
	rewind(file);
	uint8_t *data = length >= 0 ? malloc((size_t)length + !length) : NULL;
	*size = data ? fread(data, 1, (size_t)length, file) : 0;
	fclose(file);
	return data;
}

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		size_t size;
		uint8_t *data = read_file(argv[i], &size);
		if (!data) return fprintf(stderr, "cannot read %s\n", argv[i]), 1;
		fprintf(stderr, "%s\n", argv[i]);
		LLVMFuzzerTestOneInput(data, size);
		free(data);
	}
	return 0;
}
