/* host.c - a program that knows nothing of the driver, and loads and closes libraries that use it: host LIBRARY FUNCTION BYTES... */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
	for (int i = 1; i + 2 < argc; i += 3) {
		void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL), *function = library ? dlsym(library, argv[i + 1]) : NULL;
		void (*call)(uint64_t);
		memcpy(&call, &function, sizeof call);
		if (!call) return 1;
		call(strtoull(argv[i + 2], NULL, 10));
		if (dlclose(library)) return 2;
	}
	return 0;
}
