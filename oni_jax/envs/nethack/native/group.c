/* The games of a group: one call steps all of them and writes their records. What each means, and the order of things,
 * is NetHackVectorEnv's in vector_env.py, which stays the reference: both give the same bytes.
 *
 * Python owns all arrays (stepper.py describes them) and the names of its fields; C owns what is in `struct game`. */

#include "game.h"

#include <stdlib.h>
#include <string.h>

enum { NUM_BLSTATS = 27, NUM_INTERNAL = 9, NUM_PROGRAM_STATE = 6, MAP_ROWS = 21, MAP_COLUMNS = 79 };
enum { MAP_SIZE = MAP_ROWS * MAP_COLUMNS, WINDOW_SIZE = 12, BEFORE = WINDOW_SIZE / 2 };
enum { NUM_DUNGEONS = 16, NUM_LEVELS = 64, NUM_LEVELS_LEFT = NUM_DUNGEONS * NUM_LEVELS };

/* Indices into `blstats` */
enum {
    X = 0, Y = 1, SCORE = 9, DEPTH = 12, GOLD = 13, EXPERIENCE_LEVEL = 18, TIME = 20, DUNGEON = 23, LEVEL = 24,
    CONDITION = 25
};

enum { RUNNING = 0, ABORTED = -1, DEATH = 1, TASK_SUCCESSFUL = 2 }; /* end status */
enum { SCORE_GOAL, DESCENT_GOAL, ORACLE_GOAL, SOBER_ORACLE_GOAL };

static const char DESCENT_MESSAGE[] = "You descend the stairs";

/* The group, as stepper.py fills it in: each field has 8 bytes. An offset below 0: the record lacks the field. */
struct group {
    int64_t num_games;
    struct game **games; /* [N]; of group_load, or NULL */
    /* The task */
    struct rules rules;
    const int64_t *keys; /* of the actions */
    int64_t num_keys;
    int64_t goal, goal_level, oracle_glyph, unknown_glyph, hallucinating, max_episode_steps;
    double goal_reward, time_penalty, vector_bound;
    const double *blstats_scale; /* [27] */
    /* The engines' arrays */
    int64_t *blstats, *previous_blstats; /* [N, 27] */
    unsigned char *message;              /* [N, 256] */
    int16_t *glyphs;                     /* [N, 21, 79] */
    int *internal, *program_state;       /* [N, 9], [N, 6] */
    unsigned char *chars, *colors;       /* [rows, columns] of game 0 */
    int64_t screen_stride, screen_rows, screen_columns, first_row, is_terminal;
    /* The episodes */
    int64_t *end_status, *lengths, *kills, *failures; /* [N] */
    double *returns;                                  /* [N] */
    unsigned char *paid;                              /* [N] */
    int16_t *levels_left;                             /* [N, 16, 64]: squares known when last there */
    /* A record: its size, and the offsets of its fields */
    int64_t record_size, at_chars, at_colors, at_vector_obs, at_message, at_glyphs, at_hero_xy;
    int64_t at_is_first, at_reward, at_terminated, at_truncated;
};

/* Returns the fingerprint of the sources, by setup.py. */
const char *oni_fingerprint(void)
{
    return ONI_FINGERPRINT;
}

/* Returns the sizes that stepper.py and layout.py check: of `group`, `engine_layout` and `engine_settings`. */
int64_t oni_size(int64_t which)
{
    const size_t sizes[] = { sizeof(struct group), sizeof(struct engine_layout), sizeof(struct engine_settings) };
    return which >= 0 && which < 3 ? (int64_t) sizes[which] : -1;
}

static unsigned char *screen_of(const struct group *group, unsigned char *first, int64_t i)
{
    return first + i * group->screen_stride;
}

static void set_buffers(const struct group *group, int64_t i)
{
    struct engine_buffers *buffers = &group->games[i]->engine.buffers;
    buffers->blstats = (long *) group->blstats + i * NUM_BLSTATS;
    buffers->message = group->message + i * MESSAGE_SIZE;
    buffers->glyphs = group->glyphs + i * MAP_SIZE;
    buffers->internal = group->internal + i * NUM_INTERNAL;
    buffers->program_state = group->program_state + i * NUM_PROGRAM_STATE;
    unsigned char *chars = screen_of(group, group->chars, i), *colors = screen_of(group, group->colors, i);
    if (group->is_terminal) {
        buffers->tty_chars = chars;
        buffers->tty_colors = (signed char *) colors;
    } else {
        buffers->chars = chars;
        buffers->colors = colors;
    }
}

/* Returns a game without an engine; NULL: there is no memory. */
static struct game *new_game(struct group *group)
{
    struct game *game = calloc(1, sizeof *game);
    if (game)
        game->rules = &group->rules;
    return game;
}

/* Takes a game into row i, unless its engine could not be opened. */
static int add_game(struct group *group, int64_t i, struct game *game, enum failure failure)
{
    if (failure) {
        free(game);
        return failure;
    }
    group->games[i] = game;
    set_buffers(group, i);
    return NO_FAILURE;
}

/* Makes game i of the copy of NLE's library that is loaded at `base`. Returns 0, or a failure. */
int oni_load(struct group *group, int64_t i, const struct engine_layout *layout, uintptr_t base,
                  const char *folder, const char *options)
{
    struct game *game = new_game(group);
    if (!game)
        return NO_MEMORY;
    return add_game(group, i, game, engine_open_copy(&game->engine, layout, base, folder, options));
}

/* Returns whether the built engine can play on this system. */
int oni_has_segment(void)
{
    return engine_has_segment();
}

/* Makes game i of the built engine. Returns 0, or a failure. */
int oni_load_built(struct group *group, int64_t i, const struct engine_image *image, const char *folder,
                   const char *options)
{
    struct game *game = new_game(group);
    if (!game)
        return NO_MEMORY;
    return add_game(group, i, game, engine_open_built(&game->engine, image, folder, options));
}

/* Returns what game i's engine reads and writes, to bind further arrays; NULL: there is no game. */
struct engine_buffers *oni_buffers(const struct group *group, int64_t i)
{
    return group->games[i] ? &group->games[i]->engine.buffers : NULL;
}

/* Starts game i's engine, without pressing any key. Returns 0, or a failure. */
int oni_start_engine(const struct group *group, int64_t i, uint64_t core_seed, uint64_t display_seed)
{
    return group->games[i] ? engine_start(&group->games[i]->engine, core_seed, display_seed) : FINISHED;
}

/* Presses a key in game i, whatever it waits for. Returns 0, or a failure. */
int oni_press(const struct group *group, int64_t i, int key)
{
    return group->games[i] ? engine_press(&group->games[i]->engine, key) : FINISHED;
}

/* Ends game i; nothing where there is none. */
void oni_unload(struct group *group, int64_t i)
{
    if (group->games[i]) {
        engine_close(&group->games[i]->engine);
        free(group->games[i]);
        group->games[i] = NULL;
    }
}

static int64_t count_known_squares(const struct group *group, int64_t i)
{
    const int16_t *glyphs = group->glyphs + i * MAP_SIZE, unknown = (int16_t) group->unknown_glyph;
    int count = 0;
    for (int k = 0; k < MAP_SIZE; k++)
        count += glyphs[k] != unknown;
    return count;
}

/* Starts game i's episode of these seeds. Returns 0, or a failure. */
int oni_start(struct group *group, int64_t i, uint64_t core_seed, uint64_t display_seed)
{
    struct game *game = group->games[i];
    if (!game)
        return FINISHED;
    enum failure failure = game_start(game, core_seed, display_seed);
    group->kills[i] = 0;
    memset(group->levels_left + i * NUM_LEVELS_LEFT, 0, NUM_LEVELS_LEFT * sizeof *group->levels_left);
    game->known_squares = game->known_squares_before = count_known_squares(group, i);
    return failure;
}

/* Quits game i. Returns 0, or a failure. */
int oni_quit(struct group *group, int64_t i)
{
    if (!group->games[i])
        return FINISHED;
    return game_quit(group->games[i]);
}

/* Returns game i's entry for the level that it was on before its last step; NULL: there is no such level. */
static int16_t *level_before(const struct group *group, int64_t i)
{
    const int64_t *before = group->previous_blstats + i * NUM_BLSTATS;
    int64_t dungeon = before[DUNGEON], level = before[LEVEL];
    if (dungeon < 0 || dungeon >= NUM_DUNGEONS || level < 0 || level >= NUM_LEVELS)
        return NULL;
    return group->levels_left + i * NUM_LEVELS_LEFT + dungeon * NUM_LEVELS + level;
}

/* Returns the map squares known in game i before its last step, each level's as last seen. */
int64_t oni_scout(const struct group *group, int64_t i)
{
    const int16_t *levels = group->levels_left + i * NUM_LEVELS_LEFT, *level = level_before(group, i);
    int64_t sum = -(level ? *level : 0);
    if (group->games[i])
        sum += group->games[i]->known_squares_before;
    for (int k = 0; k < NUM_LEVELS_LEFT; k++)
        sum += levels[k];
    return sum;
}

static void remember_level_left(const struct group *group, int64_t i)
{
    const int64_t *before = group->previous_blstats + i * NUM_BLSTATS, *after = group->blstats + i * NUM_BLSTATS;
    int16_t *level = level_before(group, i);
    if (level && (before[DUNGEON] != after[DUNGEON] || before[LEVEL] != after[LEVEL]))
        *level = (int16_t) group->games[i]->known_squares_before;
}

static bool is_beside_oracle(const struct group *group, int64_t i)
{
    const int64_t *blstats = group->blstats + i * NUM_BLSTATS;
    const int16_t *glyphs = group->glyphs + i * MAP_SIZE;
    for (int64_t y = blstats[Y] - 1; y <= blstats[Y] + 1; y++)
        for (int64_t x = blstats[X] - 1; x <= blstats[X] + 1; x++)
            if (y >= 0 && y < MAP_ROWS && x >= 0 && x < MAP_COLUMNS
                && glyphs[y * MAP_COLUMNS + x] == group->oracle_glyph)
                return true;
    return false;
}

static bool has_descended(const struct group *group, int64_t i)
{
    const unsigned char *message = group->message + i * MESSAGE_SIZE;
    size_t length = sizeof DESCENT_MESSAGE - 1;
    if (group->blstats[i * NUM_BLSTATS + LEVEL] != group->goal_level)
        return false;
    for (size_t k = 0; k + length <= MESSAGE_SIZE; k++)
        if (memcmp(message + k, DESCENT_MESSAGE, length) == 0)
            return true;
    return false;
}

static bool reaches_goal(const struct group *group, int64_t i)
{
    switch (group->goal) {
    case DESCENT_GOAL:
        return has_descended(group, i);
    case ORACLE_GOAL:
        return is_beside_oracle(group, i);
    case SOBER_ORACLE_GOAL:
        return is_beside_oracle(group, i) && !(group->blstats[i * NUM_BLSTATS + CONDITION] & group->hallucinating);
    default:
        return false;
    }
}

static double score_reward(const struct group *group, int64_t i)
{
    const int64_t *before = group->previous_blstats + i * NUM_BLSTATS, *after = group->blstats + i * NUM_BLSTATS;
    double reward = (double) (after[SCORE] - before[SCORE]);
    if (!group->games[i]->engine.buffers.in_normal_game)
        reward = 0; /* the statistics are no longer a game's */
    return after[TIME] == before[TIME] ? reward + group->time_penalty : reward;
}

/* Writes game i's end status and returns its reward. */
static double judge(struct group *group, int64_t i)
{
    int64_t *status = group->end_status + i;
    *status = group->lengths[i] >= group->max_episode_steps ? ABORTED : RUNNING;
    if (group->games[i]->is_dead)
        *status = DEATH;
    if (group->failures[i]) {
        *status = ABORTED;
        return 0;
    }
    if (group->goal == SCORE_GOAL)
        return score_reward(group, i);
    if (*status != RUNNING || group->paid[i] || !reaches_goal(group, i))
        return 0;
    if (group->rules.continual)
        group->paid[i] = 1;
    else
        *status = TASK_SUCCESSFUL;
    return group->goal_reward;
}

/* Writes the window of a screen around a hero; zero outside. */
static void write_window(const struct group *group, const unsigned char *screen, int64_t x, int64_t y, char *to)
{
    int64_t columns = group->screen_columns, left = x - BEFORE, from = left < 0 ? -left : 0;
    int64_t end = left + WINDOW_SIZE > columns ? columns - left : WINDOW_SIZE;
    for (int64_t row = 0; row < WINDOW_SIZE; row++, to += WINDOW_SIZE) {
        int64_t line = y - BEFORE - group->first_row + row;
        memset(to, 0, WINDOW_SIZE);
        if (line >= 0 && line < group->screen_rows && from < end)
            memcpy(to + from, screen + line * columns + left + from, (size_t) (end - from));
    }
}

static void write_vector(const struct group *group, const int64_t *blstats, char *to)
{
    float vector[NUM_BLSTATS];
    double bound = group->vector_bound;
    for (int k = 0; k < NUM_BLSTATS; k++) {
        double value = (double) blstats[k] * group->blstats_scale[k];
        vector[k] = (float) (value < -bound ? -bound : value > bound ? bound : value);
    }
    memcpy(to, vector, sizeof vector);
}

/* Writes game i's observations into its record. */
void oni_observe(const struct group *group, int64_t i, char *record)
{
    const int64_t *blstats = group->blstats + i * NUM_BLSTATS;
    int64_t x = blstats[X], y = blstats[Y];
    if (group->at_chars >= 0)
        write_window(group, screen_of(group, group->chars, i), x, y, record + group->at_chars);
    if (group->at_colors >= 0)
        write_window(group, screen_of(group, group->colors, i), x, y, record + group->at_colors);
    if (group->at_vector_obs >= 0)
        write_vector(group, blstats, record + group->at_vector_obs);
    if (group->at_message >= 0)
        memcpy(record + group->at_message, group->message + i * MESSAGE_SIZE, MESSAGE_SIZE);
    if (group->at_glyphs >= 0)
        memcpy(record + group->at_glyphs, group->glyphs + i * MAP_SIZE, MAP_SIZE * sizeof *group->glyphs);
    if (group->at_hero_xy >= 0) {
        record[group->at_hero_xy] = (char) (unsigned char) x;
        record[group->at_hero_xy + 1] = (char) (unsigned char) y;
    }
}

static void write_outcome(const struct group *group, int64_t i, double reward, char *record)
{
    float value = (float) reward;
    memcpy(record + group->at_reward, &value, sizeof value);
    record[group->at_is_first] = 0;
    record[group->at_terminated] = group->end_status[i] > 0;
    record[group->at_truncated] = group->end_status[i] == ABORTED;
}

/* Writes the statistics of game i's episode, in the order of EPISODE_STATS, into row i. */
static void write_stats(const struct group *group, int64_t i, float *stats)
{
    const int64_t *last = group->previous_blstats + i * NUM_BLSTATS;
    const double values[] = {
        group->returns[i],         (double) group->lengths[i], (double) last[DEPTH],
        (double) last[GOLD],       (double) last[EXPERIENCE_LEVEL], (double) oni_scout(group, i),
        (double) group->kills[i], (double) group->end_status[i],  (double) last[TIME],
    };
    size_t num_stats = sizeof values / sizeof *values;
    for (size_t k = 0; k < num_stats; k++)
        stats[(size_t) i * num_stats + k] = (float) values[k];
}

static void step_game(struct group *group, int64_t i, int64_t action)
{
    struct game *game = group->games[i];
    memcpy(group->previous_blstats + i * NUM_BLSTATS, group->blstats + i * NUM_BLSTATS,
           NUM_BLSTATS * sizeof *group->blstats);
    game->known_squares_before = game->known_squares;
    group->failures[i] = game_step(game, (int) group->keys[action], group->kills + i);
    game->known_squares = count_known_squares(group, i);
}

/* Takes a step of every game. Returns the number of ended episodes; it starts no new ones. An engine that failed has
 * its failure in `failures`, and its episode is cut off. Returns -1 and does nothing when an action is out of range, or
 * the group is closed.
 *
 * actions: [N]. records, finals: [N] of `record_size`. stats: [N, 9]. */
int64_t oni_step(struct group *group, const int32_t *actions, char *records, char *finals, float *stats)
{
    for (int64_t i = 0; i < group->num_games; i++)
        if (actions[i] < 0 || actions[i] >= group->num_keys || !group->games[i])
            return -1;
    int64_t num_ended = 0;
    for (int64_t i = 0; i < group->num_games; i++) {
        char *record = records + i * group->record_size;
        step_game(group, i, actions[i]);
        group->lengths[i]++;
        double reward = judge(group, i);
        group->returns[i] += reward;
        remember_level_left(group, i);
        oni_observe(group, i, record);
        write_outcome(group, i, reward, record);
        if (group->end_status[i] != RUNNING) {
            memcpy(finals + i * group->record_size, record, (size_t) group->record_size);
            write_stats(group, i, stats);
            num_ended++;
        }
    }
    return num_ended;
}
