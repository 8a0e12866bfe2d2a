/* kernel_file.c - see kernel_file.h. */
#include "kernel_file.h"

#include <fcntl.h>
#include <unistd.h>

size_t tm_kernel_file_again(int fd, char *text, size_t bytes) {
	ssize_t n = fd >= 0 ? pread(fd, text, bytes - 1, 0) : 0;
	text[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

size_t tm_kernel_file(const char *path, char *text, size_t bytes) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = tm_kernel_file_again(fd, text, bytes);
	if (fd >= 0) close(fd);
	return n;
}
