/* Starting, stepping and restarting one engine. See engine.h. */

#include "engine.h"

#include <stdlib.h>
#include <string.h>

typedef void *(*start_function)(struct engine_buffers *, void *ttyrec, struct engine_settings *);
typedef void *(*step_function)(void *context, struct engine_buffers *);
typedef void (*end_function)(void *context);
typedef void (*initialiser)(void); /* of DT_INIT_ARRAY and DT_FINI_ARRAY; ours use none of the loader's arguments */

extern int __cxa_atexit(void (*function)(void *), void *object, void *library);

static _Thread_local struct engine *running; /* the engine whose code this thread has called last */

static void *at_offset(const struct engine *engine, int64_t offset)
{
    return (void *) (engine->base + (uintptr_t) offset);
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

enum failure engine_open(struct engine *engine, const struct engine_layout *layout, uintptr_t base, const char *folder,
                         const char *options)
{
    memset(engine, 0, sizeof *engine);
    engine->layout = *layout;
    engine->base = base;
    struct engine_settings *settings = &engine->settings;
    /* The engine appends a slash to the folder in its own copy. */
    if (!copy_text(settings->folder, sizeof settings->folder - 1, folder)
        || !copy_text(settings->options, sizeof settings->options, options))
        return TEXT_TOO_LONG;
    settings->spawn_monsters = 1;
    settings->fix_moon_phase = true;

    size_t size = (size_t) (layout->data_end - layout->writable);
    engine->fresh_data = malloc(size);
    if (!engine->fresh_data)
        return NO_MEMORY;
    memcpy(engine->fresh_data, at_offset(engine, layout->writable), size);
    int (*replacement)(void (*)(void *), void *, void *) = register_destructor;
    memcpy(engine->fresh_data + (layout->atexit_slot - layout->writable), &replacement, sizeof replacement);
    return NO_FAILURE;
}

/* Puts the library's variables back into the state in which it was loaded: what unloading and loading it would do,
 * without the page faults and the relocations. Its C++ destructors run first and its constructors last, since they own
 * memory outside of it and are known to the C library. */
static void restore(struct engine *engine)
{
    const struct engine_layout *at = &engine->layout;
    call_destructors(engine);
    /* Both arrays lie in memory that is read-only by now. The loader calls destructors in reverse order. */
    initialiser *destructors = at_offset(engine, at->destructors);
    for (int64_t i = at->num_destructors - 1; i >= 0; i--)
        destructors[i]();
    memcpy(at_offset(engine, at->writable), engine->fresh_data, (size_t) (at->data_end - at->writable));
    memset(at_offset(engine, at->data_end), 0, (size_t) (at->memory_end - at->data_end));
    initialiser *constructors = at_offset(engine, at->constructors);
    for (int64_t i = 0; i < at->num_constructors; i++)
        constructors[i]();
}

static void end_game(struct engine *engine)
{
    end_function end = (end_function) (engine->base + (uintptr_t) engine->layout.nle_end);
    end(engine->context);
    engine->context = NULL;
}

enum failure engine_start(struct engine *engine, uint64_t core_seed, uint64_t display_seed)
{
    running = engine;
    if (engine->context) {
        end_game(engine);
        restore(engine);
    }
    struct engine_settings *settings = &engine->settings;
    settings->seeds.core = core_seed;
    settings->seeds.display = display_seed;
    settings->seeds.are_set = true;
    /* NLE's own choice of a seed for the date and the moon */
    settings->time_seed = core_seed + 1;
    settings->time_seed_is_set = true;
    start_function start = (start_function) (engine->base + (uintptr_t) engine->layout.nle_start);
    engine->context = start(&engine->buffers, NULL, settings);
    if (!engine->context || engine->buffers.done)
        return DONE_AT_START;
    /* The only part of a game that would follow the clock; see birthday.py. */
    long *birthday = at_offset(engine, engine->layout.birthday);
    *birthday = (long) (core_seed % (UINT64_C(1) << 31));
    return NO_FAILURE;
}

enum failure engine_press(struct engine *engine, int key)
{
    if (!engine->context || engine->buffers.done)
        return FINISHED; /* the engine would run on a stack that is gone */
    running = engine;
    engine->buffers.action = key;
    step_function step = (step_function) (engine->base + (uintptr_t) engine->layout.nle_step);
    step(engine->context, &engine->buffers);
    return NO_FAILURE;
}

void engine_close(struct engine *engine)
{
    running = engine;
    if (engine->context)
        end_game(engine);
    call_destructors(engine); /* those of the library as it was loaded are called when it is unloaded */
    running = NULL;
    free(engine->fresh_data);
    engine->fresh_data = NULL;
}
