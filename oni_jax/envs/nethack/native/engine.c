/* Starting, stepping and restarting one engine. See engine.h. */

#define _GNU_SOURCE /* syscall */
#include "engine.h"

#include <asm/prctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HEADER_SIZE = 64 };   /* before a block's variables; its last word holds their address */
enum { HAS_FSGSBASE = 1 << 1 }; /* of AT_HWCAP2: the kernel lets processes write GS */

extern int __cxa_atexit(void (*function)(void *), void *object, void *library);

static _Thread_local struct engine *running; /* the engine whose code this thread has called last */

/* Has this thread's calls of the library's code be about this engine. Returns whether it could. */
static bool enter(struct engine *engine)
{
    running = engine;
    if (!engine->block)
        return true;
    if (!engine->has_wrgsbase)
        return syscall(SYS_arch_prctl, ARCH_SET_GS, engine->variables) == 0;
    __asm__ volatile("wrgsbase %0" : : "r"(engine->variables) : "memory");
    return true;
}

bool engine_has_segment(void)
{
    unsigned long base; /* what can be asked for can be set */
    return getauxval(AT_HWCAP2) & HAS_FSGSBASE || syscall(SYS_arch_prctl, ARCH_GET_GS, &base) == 0;
}

/* Copies a text with its zero. The rest of `to` is zero already. */
static bool copy_text(char *to, size_t size, const char *text)
{
    size_t length = strlen(text);
    if (length >= size)
        return false;
    memcpy(to, text, length + 1);
    return true;
}

/* Takes the place of __cxa_atexit in a restarted library. The C library searches all that was ever registered at each
 * restart, and what other libraries hold keeps it from forgetting it: it would take longer each time. */
static int register_destructor(void (*function)(void *), void *object, void *library)
{
    if (!running || running->num_registered == MAX_DESTRUCTORS)
        return __cxa_atexit(function, object, library);
    running->registered[running->num_registered++] = (struct destructor) { function, object };
    return 0;
}

static void call_destructors(struct engine *engine)
{
    while (engine->num_registered > 0) {
        struct destructor last = engine->registered[--engine->num_registered];
        last.function(last.object);
    }
}

/* Puts the variables back into the state in which the library was loaded: what unloading and loading it would do,
 * without the page faults and the relocations. Constructors run last. */
static void restore(struct engine *engine)
{
    memcpy(engine->variables, engine->fresh, engine->fresh_size);
    memset(engine->variables + engine->fresh_size, 0, engine->size - engine->fresh_size);
    for (int64_t i = 0; i < engine->num_pointers; i++)
        *(uintptr_t *) (engine->variables + engine->pointers[i]) += (uintptr_t) engine->variables;
    for (int64_t i = 0; i < engine->num_constructors; i++)
        engine->constructors[i]();
}

/* Calls the C++ destructors: they own memory outside of the variables. The loader calls those of a library in reverse
 * order. */
static void destroy(struct engine *engine)
{
    call_destructors(engine);
    for (int64_t i = engine->num_destructors - 1; i >= 0; i--)
        engine->destructors[i]();
}

static enum failure set_settings(struct engine *engine, const char *folder, const char *options)
{
    struct engine_settings *settings = &engine->settings;
    /* The engine appends a slash to the folder in its own copy. */
    if (!copy_text(settings->folder, sizeof settings->folder - 1, folder)
        || !copy_text(settings->options, sizeof settings->options, options))
        return TEXT_TOO_LONG;
    settings->spawn_monsters = 1;
    settings->fix_moon_phase = true;
    return NO_FAILURE;
}

enum failure engine_open_copy(struct engine *engine, const struct engine_layout *layout, uintptr_t base,
                              const char *folder, const char *options)
{
    memset(engine, 0, sizeof *engine);
    if (set_settings(engine, folder, options))
        return TEXT_TOO_LONG;
    engine->start = (start_function) (base + (uintptr_t) layout->nle_start);
    engine->step = (step_function) (base + (uintptr_t) layout->nle_step);
    engine->end = (end_function) (base + (uintptr_t) layout->nle_end);
    engine->birthday = (long *) (base + (uintptr_t) layout->birthday);
    engine->variables = (char *) (base + (uintptr_t) layout->writable);
    engine->fresh_size = (size_t) (layout->data_end - layout->writable);
    engine->size = (size_t) (layout->memory_end - layout->writable);
    /* Both arrays lie in memory that is read-only by now. */
    engine->constructors = (const initialiser *) (base + (uintptr_t) layout->constructors);
    engine->num_constructors = layout->num_constructors;
    engine->destructors = (const initialiser *) (base + (uintptr_t) layout->destructors);
    engine->num_destructors = layout->num_destructors;

    engine->fresh = engine->copy = malloc(engine->fresh_size);
    if (!engine->copy)
        return NO_MEMORY;
    memcpy(engine->copy, engine->variables, engine->fresh_size);
    registrar replacement = register_destructor;
    memcpy(engine->copy + (layout->atexit_slot - layout->writable), &replacement, sizeof replacement);
    return NO_FAILURE;
}

enum failure engine_open_built(struct engine *engine, const struct engine_image *image, const char *folder,
                               const char *options)
{
    const struct engine_description *built = image->description;
    memset(engine, 0, sizeof *engine);
    if (set_settings(engine, folder, options))
        return TEXT_TOO_LONG;
    engine->start = built->start;
    engine->step = built->step;
    engine->end = built->end;
    engine->fresh = image->fresh;
    engine->fresh_size = (size_t) image->fresh_size;
    engine->size = (size_t) image->block_size;
    engine->pointers = built->pointers;
    engine->num_pointers = built->pointers_end - built->pointers;
    engine->constructors = built->constructors;
    engine->num_constructors = built->constructors_end - built->constructors;

    size_t size = HEADER_SIZE + engine->size; /* in whole lines of the processor's caches */
    engine->block = aligned_alloc(HEADER_SIZE, (size + HEADER_SIZE - 1) / HEADER_SIZE * HEADER_SIZE);
    if (!engine->block)
        return NO_MEMORY;
    engine->variables = engine->block + HEADER_SIZE;
    memcpy(engine->variables - sizeof engine->variables, &engine->variables, sizeof engine->variables);
    engine->birthday = (long *) (engine->variables + built->birthday);
    engine->has_wrgsbase = getauxval(AT_HWCAP2) & HAS_FSGSBASE;
    if (!enter(engine)) {
        free(engine->block);
        return NO_SEGMENT;
    }
    *built->register_destructor = register_destructor;
    restore(engine);
    return NO_FAILURE;
}

static void end_game(struct engine *engine)
{
    engine->end(engine->context);
    engine->context = NULL;
}

enum failure engine_start(struct engine *engine, uint64_t core_seed, uint64_t display_seed)
{
    if (!enter(engine))
        return NO_SEGMENT;
    if (engine->context) {
        end_game(engine);
        destroy(engine);
        restore(engine);
    }
    struct engine_settings *settings = &engine->settings;
    settings->seeds.core = core_seed;
    settings->seeds.display = display_seed;
    settings->seeds.are_set = true;
    /* NLE's own choice of a seed for the date and the moon */
    settings->time_seed = core_seed + 1;
    settings->time_seed_is_set = true;
    engine->context = engine->start(&engine->buffers, NULL, settings);
    if (!engine->context || engine->buffers.done)
        return DONE_AT_START;
    /* The only part of a game that would follow the clock; see birthday.py. */
    *engine->birthday = (long) (core_seed % (UINT64_C(1) << 31));
    return NO_FAILURE;
}

enum failure engine_press(struct engine *engine, int key)
{
    if (!engine->context || engine->buffers.done)
        return FINISHED; /* the engine would run on a stack that is gone */
    if (!enter(engine))
        return NO_SEGMENT;
    engine->buffers.action = key;
    engine->step(engine->context, &engine->buffers);
    return NO_FAILURE;
}

void engine_close(struct engine *engine)
{
    if (enter(engine) && engine->context)
        end_game(engine);
    call_destructors(engine); /* those of a copy as it was loaded are called when it is unloaded */
    running = NULL;
    free(engine->copy);
    free(engine->block);
    engine->copy = engine->block = NULL;
}
