/* compute.c - a program that hardly allocates: it only counts primes. What it costs to be recorded is what recording costs by itself.
 *
 * compute [LIMIT]     prints how many primes there are below LIMIT (default 200,000,000: about three seconds)
 */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
	size_t limit = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000000, primes = 0;
	char *composite = calloc(limit + 1, 1);
	if (!composite) return 1;
	for (size_t n = 2; n < limit; n++) {
		if (composite[n]) continue;
		primes++;
		for (size_t k = n * n; k < limit; k += n) composite[k] = 1;
	}
	printf("%zu\n", primes);
	free(composite);
	return 0;
}
