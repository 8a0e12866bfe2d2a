/* kernel_file.h - small files of /proc and /sys, which the kernel gives in one piece. */
#ifndef TIDEMARK_COLLECTOR_KERNEL_FILE_H
#define TIDEMARK_COLLECTOR_KERNEL_FILE_H

#include <stddef.h>

/* Read into `text`, with a 0 behind it; `bytes` is the room there, for the 0 too. How many were read; 0 and an empty text: none could be. The second is of a
 * file that is open, from its begin. */
size_t tm_kernel_file(const char *path, char *text, size_t bytes);
size_t tm_kernel_file_again(int fd, char *text, size_t bytes);

#endif
