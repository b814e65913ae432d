/* One engine: a game, and the library that plays it. There are two kinds.
 *
 * A copy of NLE's libnethack.so that this process has loaded plays one game, since its variables are the game's. The
 * engine that was built here (see ../engine) is loaded once: its code reaches variables through the GS register, which
 * is set to the block of memory of a game whenever its code is entered.
 *
 * The structures below are NLE 1.3.0's interface. They hold for the builds that layout.py knows, where the size of
 * `engine_settings` is compared with that of the library's own variable, and for that which is built from its source. */
#ifndef ONI_ENGINE_H
#define ONI_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the engine reads and writes at each key. It leaves out the arrays that are NULL. */
struct engine_buffers {
    int action;
    int done;
    char in_normal_game;
    int how_done;
    int16_t *glyphs;         /* [21, 79] */
    unsigned char *chars;    /* [21, 79] */
    unsigned char *colors;   /* [21, 79] */
    unsigned char *specials; /* [21, 79] */
    long *blstats;           /* [27] */
    unsigned char *message;  /* [256] */
    int *program_state;      /* [6] */
    int *internal;           /* [9] */
    int16_t *inv_glyphs;
    unsigned char *inv_strs;
    unsigned char *inv_letters;
    unsigned char *inv_oclasses;
    unsigned char *screen_descriptions;
    unsigned char *tty_chars; /* [24, 80] */
    signed char *tty_colors;  /* [24, 80] */
    unsigned char *tty_cursor;
    int *misc;
};

struct engine_seeds {
    unsigned long core, display;
    char reseed;
    bool are_set;
    unsigned long level_seed;
    bool level_seed_is_set;
};

struct engine_settings {
    char folder[4096];
    char score_prefix[4096];
    char options[32768];
    char wizkit[4096];
    int spawn_monsters;
    char ttyrec_name[4096];
    struct engine_seeds seeds;
    bool fix_moon_phase;
    unsigned long time_seed;
    bool time_seed_is_set;
};

/* Parts of a copy of NLE's library, as offsets from its base address, and counts. layout.py fills it in: int64 only. */
struct engine_layout {
    int64_t nle_start, nle_step, nle_end; /* functions */
    int64_t birthday;                     /* the variable `ubirthday`, a long */
    int64_t writable;                     /* memory that is writable once the library is loaded: up to ... */
    int64_t data_end;                     /* ... here loaded from the file, and up to ... */
    int64_t memory_end;                   /* ... here zero at first */
    int64_t constructors, num_constructors;
    int64_t destructors, num_destructors;
    int64_t atexit_slot; /* the variable through which the library calls __cxa_atexit, in [writable, data_end) */
};

typedef void *(*start_function)(struct engine_buffers *, void *ttyrec, struct engine_settings *);
typedef void *(*step_function)(void *context, struct engine_buffers *);
typedef void (*end_function)(void *context);
typedef void (*initialiser)(void); /* a constructor or destructor; ours use none of the loader's arguments */
typedef int (*registrar)(void (*function)(void *), void *object, void *library); /* as __cxa_atexit */

/* What the built engine says of itself, in its variable `oni_engine`. */
struct engine_description {
    start_function start;
    step_function step;
    end_function end;
    int64_t birthday;                         /* the variable `ubirthday`, as an offset in a block */
    const int64_t *pointers, *pointers_end;   /* offsets of those variables of a block that hold offsets in it */
    const initialiser *constructors, *constructors_end;
    registrar *register_destructor;           /* where it takes its __cxa_atexit from */
};

/* The built engine, loaded. built.py fills it in: 64 bits each. */
struct engine_image {
    const struct engine_description *description;
    const char *fresh;              /* what a block begins as: */
    int64_t fresh_size, block_size; /* these bytes, and zeros */
};

/* A destructor that a restarted library has registered. */
struct destructor {
    void (*function)(void *);
    void *object;
};

enum { MAX_DESTRUCTORS = 16 };

struct engine {
    start_function start;
    step_function step;
    end_function end;
    long *birthday;
    /* Variables: `size` bytes at `variables`; before the first game `fresh_size` bytes are `fresh`, and the rest zero */
    char *variables;
    const char *fresh;
    size_t fresh_size, size;
    const int64_t *pointers;                         /* offsets of those that hold offsets, to be addresses */
    const initialiser *constructors, *destructors;
    int64_t num_pointers, num_constructors, num_destructors;
    struct destructor registered[MAX_DESTRUCTORS];
    int num_registered;
    char *copy;       /* of a copy of NLE's library: `fresh`, to be freed */
    char *block;      /* of the built engine: memory of the variables, to be freed */
    bool has_wrgsbase;
    void *context;    /* the game; NULL before the first start */
    struct engine_buffers buffers;
    struct engine_settings settings;
};

/* Results of a call: success, or why the game has to be replaced. Python has the texts. */
enum failure { NO_FAILURE, NO_MEMORY, FINISHED, DONE_AT_START, NEVER_BEGAN, STILL_PROMPTS, TEXT_TOO_LONG, NO_SEGMENT };

/* Returns whether this system lets a process set its GS register, as the built engine needs. */
bool engine_has_segment(void);

/* Prepares an engine, before its first start: of a copy of NLE's library loaded at `base`, or of the built one. The
 * buffers are set by the caller, afterwards. Where it fails, there is nothing to close. */
enum failure engine_open_copy(struct engine *engine, const struct engine_layout *layout, uintptr_t base,
                              const char *folder, const char *options);
enum failure engine_open_built(struct engine *engine, const struct engine_image *image, const char *folder,
                               const char *options);

/* Starts the game of these seeds, in place of the running one. */
enum failure engine_start(struct engine *engine, uint64_t core_seed, uint64_t display_seed);

/* Presses a key. */
enum failure engine_press(struct engine *engine, int key);

/* Ends the game. A copy of the library may be unloaded then. */
void engine_close(struct engine *engine);

#endif
