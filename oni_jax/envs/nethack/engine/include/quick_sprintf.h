/* In place of sprintf, included before each of the engine's C files: the same text, sooner where the format is plain. */
#ifndef ONI_QUICK_SPRINTF_H
#define ONI_QUICK_SPRINTF_H

#include <stdio.h>

int oni_sprintf(char *to, const char *format, ...);

#ifndef ONI_KEEP_SPRINTF
#define sprintf oni_sprintf
#endif

#endif
