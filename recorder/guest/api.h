/* api.h - what the two files of the public API's library side share: its declarations, as definitions need them. */
#ifndef TIDEMARK_GUEST_API_H
#define TIDEMARK_GUEST_API_H

#define TIDEMARK_API_LINKAGE __attribute__((visibility("default"))) /* strong here, weak in programs */
#include "../tidemark.h"
#include "guest.h"

/* A key that no other scope of the process has. Between enter and leave. */
uint64_t tm_scope_key(void);

#endif
