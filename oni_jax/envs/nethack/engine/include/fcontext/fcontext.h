/* What NLE asks of its library of coroutines; see coroutine.c. */
#ifndef ONI_FCONTEXT_H
#define ONI_FCONTEXT_H

#include <stddef.h>

typedef void *fcontext_t; /* top of the stack of a coroutine that waits */

typedef struct {
    void *sptr; /* its end, from which it grows down */
    size_t ssize;
} fcontext_stack_t;

typedef struct {
    fcontext_t ctx; /* the coroutine that has jumped here */
    void *data;
} fcontext_transfer_t;

/* Returns a stack with a page below it that can't be touched. A process that gets none ends. */
fcontext_stack_t create_fcontext_stack(size_t size);
void destroy_fcontext_stack(fcontext_stack_t *stack);

/* Returns a coroutine that begins with a call of `function`, which may not return. */
fcontext_t make_fcontext(void *stack, size_t size, void (*function)(fcontext_transfer_t));

/* Goes on with a coroutine. Returns what jumps back here. */
fcontext_transfer_t jump_fcontext(fcontext_t to, void *data);

#endif
