/* One engine: a copy of NLE's libnethack.so that this process has loaded, and the game that it plays.
 *
 * The structures below are NLE 1.3.0's interface. They hold for the builds that layout.py knows; it also compares the
 * size of `engine_settings` with that of the library's own variable. */
#ifndef ONI_ENGINE_H
#define ONI_ENGINE_H

#include <stdbool.h>
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

/* Parts of the library, as offsets from its base address, and counts. layout.py fills it in: int64 only. */
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

/* A destructor that a restarted library has registered. */
struct destructor {
    void (*function)(void *);
    void *object;
};

enum { MAX_DESTRUCTORS = 16 };

struct engine {
    struct engine_layout layout;
    uintptr_t base;
    char *fresh_data; /* copy of [writable, data_end) as it was before the first game */
    struct destructor registered[MAX_DESTRUCTORS];
    int num_registered;
    void *context;    /* the game; NULL before the first start */
    struct engine_buffers buffers;
    struct engine_settings settings;
};

/* Results of a call: success, or why the game has to be replaced. Python has the texts. */
enum failure { NO_FAILURE, NO_MEMORY, FINISHED, DONE_AT_START, NEVER_BEGAN, STILL_PROMPTS, TEXT_TOO_LONG };

/* Prepares the engine loaded at `base`, before its first start. The buffers are set by the caller, afterwards. */
enum failure engine_open(struct engine *engine, const struct engine_layout *layout, uintptr_t base, const char *folder,
                         const char *options);

/* Starts the game of these seeds, in place of the running one. */
enum failure engine_start(struct engine *engine, uint64_t core_seed, uint64_t display_seed);

/* Presses a key. */
enum failure engine_press(struct engine *engine, int key);

/* Ends the game. The library may be unloaded then. */
void engine_close(struct engine *engine);

#endif
