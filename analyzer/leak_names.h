/* leak_names.h - what the names of functions and modules say, for leaks.c. */
#ifndef TIDEMARK_ANALYZER_LEAK_NAMES_H
#define TIDEMARK_ANALYZER_LEAK_NAMES_H

#include "catalog.h"

bool tm_is_library_function(struct tm_text function);
bool tm_is_library(struct tm_text module);
/* How much of a function's name stands in a sentence. */
int tm_name_length(struct tm_text name);

#endif
