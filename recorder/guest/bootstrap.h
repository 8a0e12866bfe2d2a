/* bootstrap.h - memory for calls that come before the real malloc is known (real.c).
 *
 * Owns:     a few mappings that are never given back.
 * Threads:  any. Never blocks, never fails but for want of memory (NULL).
 */
#ifndef TIDEMARK_GUEST_BOOTSTRAP_H
#define TIDEMARK_GUEST_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>

void *tm_bootstrap_alloc(size_t alignment, size_t size); /* fresh bytes are zero */
bool tm_bootstrap_owns(const void *p);
size_t tm_bootstrap_size(const void *p);              /* of a block it owns */
void *tm_bootstrap_realloc(void *p, size_t size);     /* of a block it owns; moves to the real malloc once that is known */

bool tm_real_ready(void); /* every function of tm_real is known */

#endif
