/* A game with a task's rules for pressing keys: the same as NetHackGame's in game.py, where they are explained. */
#ifndef ONI_GAME_H
#define ONI_GAME_H

#include "engine.h"

#define MESSAGE_SIZE 256

/* Rules of a task, of the whole group. */
struct rules {
    int64_t extended;
    int64_t continual;
    int64_t max_opening_presses;
    int64_t max_automatic_presses;
};

/* Facts parsed from a message. */
struct facts {
    bool kill, skill, kept;
    bool eat_prompt, drink_prompt;
    unsigned char first_choice; /* first item offered; 0: none */
    unsigned questions;         /* bits of those in game.c */
};

struct game {
    struct engine engine;
    const struct rules *rules;
    struct facts facts;
    bool is_dead;
    int64_t known_squares;        /* of the map shown */
    int64_t known_squares_before; /* of that before the last step */
};

/* Starts the episode of these seeds, and plays up to its first turn. */
enum failure game_start(struct game *game, uint64_t core_seed, uint64_t display_seed);

/* Takes the agent's step, and answers the prompts after it. */
enum failure game_step(struct game *game, int key, int64_t *kill_count);

/* Quits a running game through its prompts. */
enum failure game_quit(struct game *game);

#endif
